"""Which streams belong to the sentences before and behind one, of the same request."""

from collections.abc import Sequence

from services.token2wav.inputs.request import Sentence
from services.token2wav.scheduling.stream_slot import StreamSlot


def neighbours(sentence: Sentence, slots: Sequence[StreamSlot]) -> tuple[StreamSlot | None, StreamSlot | None]:
    """The streams of the nearest preceding and following sentences of the same request; None where
    there is none.
    """
    same = (
        [slot for slot in slots if slot.sentence.utterance == sentence.utterance and not slot.cancelled]
        if sentence.utterance
        else []
    )
    ahead = [slot for slot in same if slot.sentence.sentence_index < sentence.sentence_index]
    behind = [slot for slot in same if slot.sentence.sentence_index > sentence.sentence_index]
    return (
        max(ahead, key=lambda slot: slot.sentence.sentence_index, default=None),
        min(behind, key=lambda slot: slot.sentence.sentence_index, default=None),
    )
