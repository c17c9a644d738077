"""Plays one synthesis and measures it at the client."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, cast

from cosyserve.client.speech import Speech
from cosyserve.client.types import Header, Summary
from cosyserve.commands.terminal.output import plain

Play = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True)
class Heard:
    """Result of a synthesis, as measured at the client."""

    seconds: float
    """Length of the audio that arrived."""
    first_sound_seconds: float
    """From the request to the first byte of audio."""
    wall_seconds: float
    """From the request to its end."""
    header: Header
    summary: Summary
    first_audible_seconds: float | None = None
    """From the request to the first sample above -40 dBFS at a player that starts with the first
    byte; None if there is none.
    """

    @property
    def real_time_factor(self) -> float:
        """Seconds of waiting per second of audio."""
        return self.wall_seconds / self.seconds if self.seconds else float("inf")

    def as_dict(self) -> dict[str, Any]:
        """For JSON; "server" holds what the server measured."""
        values = {
            "seconds": self.seconds,
            "first_sound_seconds": self.first_sound_seconds,
            "first_audible_seconds": self.first_audible_seconds,
            "real_time_factor": self.real_time_factor,
            **asdict(self.header),
            "server": asdict(self.summary),
        }
        return dict(plain(values))

    def __str__(self) -> str:
        return (
            f"{self.seconds:.2f} s of audio, first byte after {1000 * self.first_sound_seconds:.0f} ms, "
            f"first audible sample after {milliseconds(self.first_audible_seconds)}, "
            f"real-time factor {self.real_time_factor:.2f}, voice {self.header.voice}, seed {self.header.seed}"
        )


async def hear(speech: Speech, play: Play) -> Heard:
    """Play a synthesis to its end; `play` gets each chunk as it arrives."""
    begin = time.monotonic()
    samples = 0
    async with speech:
        async for chunk in speech:
            samples += len(chunk.audio) // speech.bytes_per_sample
            await play(chunk.audio)
    # Both are set once a stream has ended without an error.
    header, summary = cast("Header", speech.header), cast("Summary", speech.summary)
    return Heard(
        seconds=samples / header.sample_rate,
        first_sound_seconds=speech.first_byte_seconds or 0.0,
        wall_seconds=time.monotonic() - begin,
        header=header,
        summary=summary,
        first_audible_seconds=speech.first_audible_seconds,
    )


def milliseconds(seconds: float | None) -> str:
    """For people; None is "never"."""
    return "never" if seconds is None else f"{1000 * seconds:.0f} ms"
