"""Detects words that were not spoken by their duration: the alignment leaves them almost no tokens.

A speech-token model may end a sentence before its last words, or skip some. The alignment has to
place every word somewhere and gives a word that was not spoken one token or none; the fewest tokens
of a spoken word depend on its number of sounds (`tools.quality.guard_margins`).
"""

from collections.abc import Sequence

from cosyserve.errors import LeftOut
from services.orchestrator.speech.token_stream import GenerationTiming
from services.orchestrator.speech.utterance import OpenSentence, Sentence, SpokenWord

FEWEST_LETTERS = 2
"""A word of one letter (`a`, `I`) may merge with its neighbours."""


def fewest_tokens(word: SpokenWord) -> int:
    """Fewest tokens, 40 ms each, of a spoken word by its text ids, which are phonemes and stress
    marks: an unstressed `or` or `he` (two ids) has been heard in one token, `do` and `your` (three)
    in two, `where` (four) in two, longer ones in four.
    """
    return 1 if word.ids < 3 else 2 if word.ids < 6 else 3


def tokens_of(word: SpokenWord, borders: Sequence[int]) -> int:
    """Tokens of the word. borders: for each text id the token with which it begins, then the number
    of all tokens.
    """
    return borders[min(word.first_id + word.ids, len(borders) - 1)] - borders[word.first_id]


def require_all_words(sentence: Sentence | OpenSentence, timing: GenerationTiming, tokens: int) -> None:
    """Raise LeftOut with the number of words, never the words, that have too few of the `tokens` of
    the sentence to have been spoken. A sentence whose ids are not aligned passes.
    """
    if len(timing.text_starts) != sentence.length:
        return
    borders = (*timing.text_starts, tokens)
    expected = [word for word in sentence.words if sum(map(str.isalpha, word.text)) >= FEWEST_LETTERS]
    missing = sum(tokens_of(word, borders) < fewest_tokens(word) for word in expected)
    if missing:
        where = f"sentence {sentence.index}, which has {tokens} speech tokens"
        raise LeftOut(f"llm left out {missing} of the {len(sentence.words)} words of {where}: they have no room there")
