"""Memory for the state of streams: who is let in, and what is counted."""

from collections.abc import Sequence
from dataclasses import dataclass

from cosyserve.errors import Overloaded
from services.token2wav.scheduling.stream_slot import StreamSlot

RETRY_AFTER_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How many streams there may be, and how much memory their state may take.

    max_streams: open at once. state_bytes: memory of all streams together. reserve_tokens: what is
    set aside for each stream beside its prompt, in generated tokens at 25 Hz.

    A stream is admitted when its prompt and its reserve fit beside what the others hold or have
    reserved, whichever is more; one stream alone is always admitted. Sentences that stay within the
    reserve never exceed state_bytes together. Longer ones may: from then on only the oldest stream
    that has work to do goes on. That bounds how many grow, not the sum: while the oldest waits for
    its reader or for tokens the next one grows, so that readers that keep all their streams waiting
    let each of them grow in turn. A stream that goes on without kept state claims nothing.
    """

    max_streams: int
    state_bytes: int
    reserve_tokens: int = 250


class Budget:
    """Sums over the streams there are; guarded by the batcher's lock."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.peak = 0
        """Most bytes held at once since the start."""

    def check_room(self, slots: Sequence[StreamSlot], needed: int, *, follows: bool = False) -> None:
        """Raise Overloaded unless a stream that needs `needed` bytes, its reserve included, may be
        opened beside `slots`.

        follows: it is of a request that has a stream among them, where one of them does not count:
        each request may have one ahead.
        """
        if not follows and sum(slot.follows is None or slot.follows.over for slot in slots) >= self._limits.max_streams:
            raise Overloaded(
                f"all {self._limits.max_streams} streams of the decoder are taken", retry_after=RETRY_AFTER_SECONDS
            )
        claimed = sum(max(slot.bytes, slot.reserved) for slot in slots)
        if slots and claimed + needed > self._limits.state_bytes:
            raise Overloaded(
                f"the streams claim {claimed} of {self._limits.state_bytes} bytes of decoder state and this one needs "
                f"{needed}",
                retry_after=RETRY_AFTER_SECONDS,
            )

    def needed(self, start_bytes: int, token_bytes: int) -> int:
        """Bytes that a stream claims when it is opened."""
        return start_bytes + self._limits.reserve_tokens * token_bytes

    def used_up(self, slots: Sequence[StreamSlot]) -> bool:
        """Whether the streams hold all there is."""
        return held_bytes(slots) >= self._limits.state_bytes

    def recount(self, slots: Sequence[StreamSlot]) -> None:
        """Count anew what each stream holds: a step makes its streams grow, the prompt cache takes
        over what they made or drops what they only shared, and a stream that gives its memory back
        will not ask for any again."""
        for slot in slots:
            if slot.state is None:
                continue
            slot.bytes = slot.state.bytes if slot.state.position else max(slot.bytes, slot.state.bytes)
            if slot.state.recomputing:
                slot.reserved = 0
        self.peak = max(self.peak, held_bytes(slots))


def held_bytes(slots: Sequence[StreamSlot]) -> int:
    """Bytes of state that the streams hold."""
    return sum(slot.bytes for slot in slots)
