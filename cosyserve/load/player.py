"""A listener's player: it begins with the first sound and runs dry where the next one is
late.
"""

import time
from dataclasses import dataclass

from cosyserve.client.speech import Speech
from cosyserve.client.types import Summary
from cosyserve.spec import SAMPLE_RATE

LEAST_GAP_SECONDS = 0.001
"""Less is the clock's own noise."""
BYTES_PER_SAMPLE = 2
"""Of token2wav's audio, 16-bit PCM."""


@dataclass(frozen=True)
class Stall:
    """A player that has nothing left. piece: the one it waits for, from 0. at: seconds of audio
    that it has played by then.
    """

    piece: int
    at: float
    seconds: float


@dataclass(frozen=True)
class Heard:
    """Seconds of one speech since it was asked for. dry: when and for how long the player had
    nothing left.

    first_sound: until the first byte. first_audible: until the player plays the first sample above
    -40 dBFS; None when there is none.
    """

    first_sound: float
    end: float
    audio: float
    summary: Summary
    first_audible: float | None = None
    dry: tuple[Stall, ...] = ()

    @property
    def gaps(self) -> int:
        """How often the player ran dry."""
        return len(self.dry)

    @property
    def stalls(self) -> float:
        """For how long, all in all."""
        return sum(stall.seconds for stall in self.dry)

    @property
    def left(self) -> float:
        """Seconds that the player still plays when the last of it has arrived."""
        return max(0.0, self.first_sound + self.audio + self.stalls - self.end)


class Player:
    """What is played when, without a sound: `hear` takes each piece of audio as it arrives.
    buffer_seconds: it begins so long after the first sound has arrived."""

    def __init__(self, buffer_seconds: float = 0.0) -> None:
        self._buffer = buffer_seconds
        self.first_sound: float | None = None
        self.dry: list[Stall] = []
        self.pieces = 0
        self.audio = 0.0
        self._dry_at = 0.0

    @property
    def gaps(self) -> int:
        """How often it ran dry."""
        return len(self.dry)

    @property
    def stalls(self) -> float:
        """For how many seconds, all in all."""
        return sum(dry.seconds for dry in self.dry)

    def hear(self, now: float, seconds: float) -> None:
        """`seconds` of audio arrive at `now`, in seconds since the request."""
        if self.first_sound is None:
            self.first_sound = now
            self._dry_at = now + self._buffer
        elif (gap := now - self._dry_at) > LEAST_GAP_SECONDS:
            self.dry.append(Stall(self.pieces, self.audio, gap))
        self.pieces += 1
        self._dry_at = max(self._dry_at, now) + seconds
        self.audio += seconds

    def left(self, now: float) -> float:
        """Seconds that it can still play at `now`, in seconds since the request."""
        return max(0.0, self._dry_at - now)


async def listen(speech: Speech, buffer_seconds: float = 0.0) -> Heard:
    """Hear a speech (24 kHz, linear) that is asked for now to its end; raises what ends it early.
    buffer_seconds: of the player.
    """
    began, player = time.monotonic(), Player(buffer_seconds)
    async with speech:
        async for chunk in speech:
            player.hear(time.monotonic() - began, len(chunk.audio) / speech.bytes_per_sample / SAMPLE_RATE)
    if speech.summary is None or player.first_sound is None:
        raise RuntimeError("a speech ended well without audio or summary")
    audible = speech.first_audible_seconds
    return Heard(
        player.first_sound,
        time.monotonic() - began,
        player.audio,
        speech.summary,
        None if audible is None else audible + buffer_seconds,
        tuple(player.dry),
    )
