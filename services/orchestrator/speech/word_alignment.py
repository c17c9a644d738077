"""What the alignment of a sentence's speech tokens with its text ids says of its words: their
times, and which of them were not spoken.

A speech-token model may end a sentence before its last words, or skip some. The alignment has to
place every word somewhere and gives a word that was not spoken one token or none; the fewest tokens
of a spoken word depend on its number of sounds (`tools.quality.guard_margins`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cosyserve import spec
from cosyserve.errors import LeftOut
from services.orchestrator.speech.token_stream import GenerationTiming, TokenStream
from services.orchestrator.speech.utterance import Sentence, SpokenWord

FEWEST_LETTERS = 2
"""A word of one letter (`a`, `I`) may merge with its neighbours."""


@dataclass(frozen=True)
class WordTime:
    """start, end: seconds from the beginning of the utterance."""

    text: str
    start: float
    end: float
    sentence: int


def word_times(stream: TokenStream, first_sample: int, speed: float) -> list[WordTime]:
    """The words of a sentence whose first sample (24 kHz) is `first_sample` of the utterance; none
    if its tokens are not aligned.
    """
    sentence, borders = stream.sentence, _borders(stream.sentence, stream.timing, len(stream.tokens))
    if borders is None:
        return []

    def seconds(place: int) -> float:
        token = stream.spoken_before(borders[min(place, sentence.length)])
        return first_sample / spec.SAMPLE_RATE + token / spec.TOKENS_PER_SECOND / speed

    return [
        WordTime(word.text, seconds(word.first_id), seconds(word.first_id + word.ids), sentence.index)
        for word in sentence.words
    ]


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


def require_all_words(sentence: Sentence, timing: GenerationTiming, tokens: int) -> None:
    """Raise LeftOut with the number of words, never the words, that have too few of the `tokens` of
    the sentence to have been spoken. A sentence whose ids are not aligned passes.
    """
    borders = _borders(sentence, timing, tokens)
    if borders is None:
        return
    expected = [word for word in sentence.words if sum(map(str.isalpha, word.text)) >= FEWEST_LETTERS]
    missing = sum(tokens_of(word, borders) < fewest_tokens(word) for word in expected)
    if missing:
        where = f"sentence {sentence.index}, which has {tokens} speech tokens"
        raise LeftOut(f"llm left out {missing} of the {len(sentence.words)} words of {where}: they have no room there")


def _borders(sentence: Sentence, timing: GenerationTiming | None, tokens: int) -> tuple[int, ...] | None:
    """For each text id the token with which it begins, then the number of all `tokens`; None if
    they are not aligned.
    """
    if timing is None or len(timing.text_starts) != sentence.length:
        return None
    return (*timing.text_starts, tokens)
