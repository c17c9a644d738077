"""One synthesis as this machine heard it, with the clock running here and not at the server."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, cast

from cosyserve.speech import Speech
from cosyserve.utterance import Header, Summary

Play = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True)
class Heard:
    """What came of a synthesis. seconds: length of the audio that arrived; wall_seconds: from the request to its end."""

    seconds: float
    first_sound_seconds: float
    wall_seconds: float
    header: Header
    summary: Summary

    @property
    def real_time_factor(self) -> float:
        """Seconds of waiting per second of audio."""
        return self.wall_seconds / self.seconds if self.seconds else float("inf")

    def as_dict(self) -> dict[str, Any]:
        """For JSON; "server" holds what the server measured."""
        return {
            "seconds": self.seconds,
            "first_sound_seconds": self.first_sound_seconds,
            "real_time_factor": self.real_time_factor,
            **asdict(self.header),
            "server": asdict(self.summary),
        }

    def __str__(self) -> str:
        return (
            f"{self.seconds:.2f} s of audio, first sound after {1000 * self.first_sound_seconds:.0f} ms, "
            f"real-time factor {self.real_time_factor:.2f}, voice {self.header.voice}, seed {self.header.seed}"
        )


async def hear(speech: Speech, play: Play) -> Heard:
    """Play a synthesis to its end; `play` gets each chunk as it arrives."""
    begin = time.monotonic()
    first_sound, samples = 0.0, 0
    async with speech:
        async for chunk in speech:
            first_sound = first_sound or time.monotonic() - begin
            samples += len(chunk.audio) // speech.bytes_per_sample
            await play(chunk.audio)
    # Both are set once a stream has ended without an error.
    header, summary = cast("Header", speech.header), cast("Summary", speech.summary)
    return Heard(samples / header.sample_rate, first_sound, time.monotonic() - begin, header, summary)
