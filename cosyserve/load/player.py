"""Hears a speech and measures it: a player begins with the first sound and runs dry where the next
one is late.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from cosyserve.audio.encoding import Encoding
from cosyserve.client.speech import Speech
from cosyserve.client.types import Header, Summary

LEAST_GAP_SECONDS = 0.001
"""Less is the clock's own noise."""
BYTES_PER_SAMPLE = 2
"""Of token2wav's audio, 16-bit PCM."""
Play = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True)
class Stall:
    """A player that has nothing left, for `seconds`. piece: the one it waits for, from 0. at:
    seconds of audio that it has played by then.
    """

    piece: int
    at: float
    seconds: float


class _Played:
    """dry: when and for how long a player had nothing left."""

    dry: Sequence[Stall]

    @property
    def gaps(self) -> int:
        """How often the player ran dry."""
        return len(self.dry)

    @property
    def stalls(self) -> float:
        """For how many seconds, all in all."""
        return sum(stall.seconds for stall in self.dry)


@dataclass(frozen=True)
class Heard(_Played):
    """One speech as it was heard, in seconds since it was asked for. audio: how long it is.

    first_sound: until the first byte. first_audible: until the player plays the first sample above
    -40 dBFS; None when there is none.
    """

    first_sound: float
    end: float
    audio: float
    header: Header
    summary: Summary
    first_audible: float | None = None
    dry: tuple[Stall, ...] = ()

    @property
    def left(self) -> float:
        """Seconds that the player still plays when the last of it has arrived."""
        return max(0.0, self.first_sound + self.audio + self.stalls - self.end)

    @property
    def real_time_factor(self) -> float:
        """Seconds of waiting per second of audio."""
        return self.end / self.audio if self.audio else float("inf")

    @property
    def _first_audible(self) -> str:
        measured = isinstance(self.header.encoding, Encoding)
        return f"after {milliseconds(self.first_audible)}" if measured else "not measured in a compressed file"

    def as_dict(self) -> dict[str, Any]:
        """For JSON; "server" holds what the server measured."""
        return {
            "seconds": self.audio,
            "first_sound_seconds": self.first_sound,
            "first_audible_seconds": self.first_audible,
            "real_time_factor": self.real_time_factor,
            **asdict(self.header),
            "server": asdict(self.summary),
        }

    def __str__(self) -> str:
        return (
            f"{self.audio:.2f} s of audio, first byte after {1000 * self.first_sound:.0f} ms, "
            f"first audible sample {self._first_audible}, "
            f"real-time factor {self.real_time_factor:.2f}, voice {self.header.voice}, seed {self.header.seed}"
        )


class Player(_Played):
    """What is played when, without a sound: `hear` takes each piece of audio as it arrives.
    buffer_seconds: it begins so long after the first sound has arrived.
    """

    def __init__(self, buffer_seconds: float = 0.0) -> None:
        self._buffer = buffer_seconds
        self.first_sound: float | None = None
        self.dry: list[Stall] = []
        self.pieces = 0
        self.audio = 0.0
        self._dry_at = 0.0

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


async def listen(speech: Speech, buffer_seconds: float = 0.0, *, play: Play | None = None) -> Heard:
    """Hear a speech that is asked for now to its end; raises what ends it early. buffer_seconds: of
    the player. play: gets each chunk as it arrives.
    """
    began, player = time.monotonic(), Player(buffer_seconds)
    arrivals: list[tuple[float, int]] = []
    end = speech.request.start_sample
    async with speech:
        async for chunk in speech:
            arrivals.append((time.monotonic() - began, chunk.start_sample))
            if isinstance(speech.encoding, Encoding):
                end = chunk.start_sample + len(chunk.audio) // speech.encoding.bytes_per_sample
            if play is not None:
                await play(chunk.audio)
    # Both are set once a stream has ended without an error.
    header, summary = cast("Header", speech.header), cast("Summary", speech.summary)
    if not isinstance(speech.encoding, Encoding):
        end = round(summary.audio_seconds * header.sample_rate)
    # How much a chunk of a compressed file holds is known when the next one is there.
    borders = [*(start for _, start in arrivals[1:]), end]
    for (now, start), border in zip(arrivals, borders, strict=False):
        player.hear(now, (border - start) / header.sample_rate)
    audible = speech.first_audible_seconds
    return Heard(
        first_sound=speech.first_byte_seconds or 0.0,
        end=time.monotonic() - began,
        audio=(end - speech.request.start_sample) / header.sample_rate,
        header=header,
        summary=summary,
        first_audible=None if audible is None else audible + buffer_seconds,
        dry=tuple(player.dry),
    )


def milliseconds(seconds: float | None) -> str:
    """As text; None is "never"."""
    return "never" if seconds is None else f"{1000 * seconds:.0f} ms"
