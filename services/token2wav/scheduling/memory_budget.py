"""The memory budget for stream states: admission and accounting."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cosyserve.errors import Overloaded
from cosyserve.spec import CHUNK_TOKENS
from services.token2wav.decoders.interface import BoundsItsState, Decoder
from services.token2wav.scheduling.room_forecast import RoomForecast
from services.token2wav.scheduling.stream_slot import StreamSlot

_REMEMBERED, _ENOUGH = 64, 8
_SUPPOSED_TOKENS = 100
"""Length of a sentence while fewer than _ENOUGH are known: four seconds."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the number of streams and on the memory of their states.

    max_streams: streams open concurrently. state_bytes: bytes of all streams together.
    reserve_tokens: memory reserved for each stream in addition to its prompt, in generated tokens
    at 25 Hz; for a decoder that goes on without room at most that, and what the latest sentences
    took on average.

    A stream is admitted if its prompt and its reserve fit next to what the others hold or have
    reserved, whichever is larger; a single stream is always admitted. Sentences within the reserve
    never exceed state_bytes together. Longer ones may; from then on only the oldest stream with
    pending work continues. That bounds how many streams grow, not the sum: while the oldest waits
    for its reader or for tokens the next one grows, so readers that stall all their streams let
    each of them grow in turn. A stream that continues without stored state claims what it would
    hold.
    """

    max_streams: int
    state_bytes: int
    reserve_tokens: int = 250


class Budget:
    """Sums over the current streams; guarded by the batcher's lock."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.room = RoomForecast()
        self.peak = 0
        """Maximum number of bytes held at once since the start."""
        self._lengths: deque[int] = deque(maxlen=_REMEMBERED)
        """Of the latest sentences, in tokens."""

    def check_room(
        self,
        slots: Sequence[StreamSlot],
        needed: int,
        *,
        follows: bool = False,
        now: float = 0.0,
        utterance: int | None = 0,
    ) -> None:
        """Raise Overloaded, with the time until room is expected, unless a stream that needs
        `needed` bytes, its reserve included, may be opened next to `slots`. now: in seconds of
        their clock. utterance: as in `RoomForecast.seconds`; a stream that follows is promised
        nothing.

        follows: the stream belongs to a request that has a stream among them; one of those does not
        count, because each request may have one stream ahead. What streams without state would hold
        does not count for it either: to make its listener wait would be a gap.
        """
        counted = [slot for slot in slots if slot.follows is None or slot.follows.over]
        if not follows and len(counted) >= (most := self._limits.max_streams):
            raise Overloaded(
                f"all {most} streams of the decoder are taken",
                retry_after=self.until_one_ends(counted, now, utterance, missing=1 + len(counted) - most),
            )
        claims = [slot.bytes if follows and is_remade(slot) else _claim(slot) for slot in slots]
        claimed, most = sum(claims), self._limits.state_bytes
        if slots and claimed + needed > most:
            held = [(slot.opened_at, claim) for slot, claim in zip(slots, claims, strict=True)]
            raise Overloaded(
                f"the streams claim {claimed} of {most} bytes of decoder state and this one needs {needed}",
                retry_after=self.room.seconds(
                    held, claimed + needed - most, needed, now, None if follows else utterance
                ),
            )

    def until_one_ends(
        self, slots: Sequence[StreamSlot], now: float, utterance: int | None = 0, *, missing: int = 1
    ) -> float:
        """Seconds until `missing` of these streams are expected to be over. utterance: as in
        `RoomForecast.seconds`.
        """
        return self.room.seconds([(slot.opened_at, 1) for slot in slots], missing, 1, now, utterance)

    def needed(self, start_bytes: int, decoder: Decoder[Any]) -> int:
        """Bytes that a stream claims when it is opened."""
        most = self._limits.reserve_tokens
        tokens = min(most, self._usual_length) if decoder.goes_on_without_room else most
        if isinstance(decoder, BoundsItsState):
            return start_bytes + decoder.growth_bytes(tokens)
        return start_bytes + tokens * decoder.token_bytes

    def complete(self, tokens: int) -> None:
        """A sentence has so many tokens. One shorter than a block does not count: with one token
        a voice is warmed.
        """
        if tokens >= CHUNK_TOKENS:
            self._lengths.append(tokens)

    def left(self, slot: StreamSlot, now: float) -> None:
        """A stream is over. The time of one that was cut short, or of a warm-up, says nothing."""
        if slot.is_decoded and not slot.cancelled and len(slot.tokens) >= CHUNK_TOKENS:
            self.room.complete(now - slot.opened_at)

    @property
    def _usual_length(self) -> int:
        """The mean: while some sentences are longer, others end and leave their room. With less, so
        many go on without state that all are slower; with the length of the longest, a quarter of
        the room stays empty.
        """
        return _SUPPOSED_TOKENS if len(self._lengths) < _ENOUGH else -(-sum(self._lengths) // len(self._lengths))

    def used_up(self, slots: Sequence[StreamSlot]) -> bool:
        """Whether the streams hold the whole budget."""
        return held_bytes(slots) >= self._limits.state_bytes

    def recount(self, slots: Sequence[StreamSlot]) -> None:
        """Recount the bytes that each stream holds: a step makes its streams grow, the prompt cache
        takes over their states or evicts shared ones, and a stream may give up its memory.
        """
        for slot in slots:
            if slot.state is None:
                continue
            slot.bytes = slot.state.bytes if slot.state.position else max(slot.bytes, slot.state.bytes)
        self.peak = max(self.peak, held_bytes(slots))


def is_remade(slot: StreamSlot) -> bool:
    """Whether the stream goes on without state, which is computed again in each of its steps."""
    return slot.state is not None and slot.state.recomputing


def _claim(slot: StreamSlot) -> int:
    """Bytes that no other stream is given. A stream that is recomputed would hold those of its
    position if there were room: while there is none, another stream would only make more of them go
    on without state, at many times the cost of each of their steps.
    """
    if slot.state is None or not is_remade(slot):
        return max(slot.bytes, slot.reserved)
    voice, decoder = slot.sentence.voice, slot.decoder
    behind = max(slot.state.position - len(voice.tokens), 0)
    growth = decoder.growth_bytes(behind) if isinstance(decoder, BoundsItsState) else behind * decoder.token_bytes
    return max(decoder.start_bytes(voice) + growth, slot.reserved)


def held_bytes(slots: Sequence[StreamSlot]) -> int:
    """Bytes of state that the streams hold."""
    return sum(slot.bytes for slot in slots)
