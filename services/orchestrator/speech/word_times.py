"""Times of the words of a sentence, from the alignment of its speech tokens."""

from dataclasses import dataclass

from cosyserve import spec
from services.orchestrator.speech.token_stream import TokenStream


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
    starts = stream.timing.text_starts if stream.timing is not None else ()
    sentence = stream.sentence
    ids = sentence.length
    if len(starts) != ids:
        return []
    border = (*starts, len(stream.tokens))

    def seconds(place: int) -> float:
        return first_sample / spec.SAMPLE_RATE + border[min(place, ids)] / spec.TOKENS_PER_SECOND / speed

    return [
        WordTime(word.text, seconds(word.first_id), seconds(word.first_id + word.ids), sentence.index)
        for word in sentence.words
    ]
