"""Words of the text that were not spoken, known by their times: the alignment gives what nobody
says no room.

A speech-token model may end a sentence before its last words, or pass over some. The alignment,
which has to place every word somewhere, leaves one that was not spoken a token or none; how few a
spoken one has depends on how many sounds it has (`tools.quality.guard_margins`).
"""

from collections.abc import Sequence

from cosyserve.errors import LeftOut
from services.orchestrator.speech.token_stream import GenerationTiming
from services.orchestrator.speech.utterance import OpenSentence, Sentence, SpokenWord

FEWEST_LETTERS = 2
"""A word of one letter (`a`, `I`) may melt into its neighbours."""


def fewest_tokens(word: SpokenWord) -> int:
    """Of a spoken word, 40 ms each, by its text ids, which are phonemes and stress marks: an
    unstressed `or` or `he` (two ids) has been heard in one token, `do` and `your` (three) in two,
    `where` (four) in two, longer ones in four."""
    return 1 if word.ids < 3 else 2 if word.ids < 6 else 3


def tokens_of(word: SpokenWord, borders: Sequence[int]) -> int:
    """How many it has. borders: for each text id the token with which it begins, and behind them
    the number of all tokens.
    """
    return borders[min(word.first_id + word.ids, len(borders) - 1)] - borders[word.first_id]


def require_all_words(sentence: Sentence | OpenSentence, timing: GenerationTiming, tokens: int) -> None:
    """Raises LeftOut naming how many words of a sentence of so many speech tokens are too short to
    have been spoken, never the words. A sentence whose ids are not aligned is passed over."""
    if len(timing.text_starts) != sentence.length:
        return
    borders = (*timing.text_starts, tokens)
    expected = [word for word in sentence.words if sum(map(str.isalpha, word.text)) >= FEWEST_LETTERS]
    missing = sum(tokens_of(word, borders) < fewest_tokens(word) for word in expected)
    if missing:
        where = f"sentence {sentence.index}, which has {tokens} speech tokens"
        raise LeftOut(f"llm left out {missing} of the {len(sentence.words)} words of {where}: they have no room there")
