"""A player as a listener has it: it begins with the first sound and hopes that the next one is there in time."""

import time
from dataclasses import dataclass

from cosyserve.spec import SAMPLE_RATE
from cosyserve.speech import Speech
from cosyserve.utterance import Summary

LEAST_GAP_SECONDS = 0.001
"""Less is the clock's own noise."""
BYTES_PER_SAMPLE = 2
"""Of token2wav's audio, 16-bit PCM."""


@dataclass(frozen=True)
class Heard:
    """Seconds of one speech since it was asked for. gaps: how often the player ran dry; stalls: for how long, all in all."""

    first_sound: float
    end: float
    audio: float
    gaps: int
    stalls: float
    summary: Summary

    @property
    def left(self) -> float:
        """Seconds that the player still speaks when the last of it has arrived."""
        return max(0.0, self.first_sound + self.audio + self.stalls - self.end)


class Player:
    """What is played when, without a sound: `hear` is told each piece of audio as it arrives."""

    def __init__(self) -> None:
        self.first_sound: float | None = None
        self.gaps = 0
        self.stalls = self.audio = 0.0
        self._dry_at = 0.0

    def hear(self, now: float, seconds: float) -> None:
        """`seconds` of audio arrive at `now`, in seconds since the request."""
        if self.first_sound is None:
            self.first_sound = now
        elif (gap := now - self._dry_at) > LEAST_GAP_SECONDS:
            self.gaps += 1
            self.stalls += gap
        self._dry_at = max(self._dry_at, now) + seconds
        self.audio += seconds


async def listen(speech: Speech, begin: float | None = None) -> Heard:
    """Hear a speech (24 kHz, linear) to its end; raises what ends it early. begin: time.monotonic() of the request, default now."""
    began = time.monotonic() if begin is None else begin
    player = Player()
    async with speech:
        async for chunk in speech:
            player.hear(time.monotonic() - began, len(chunk.audio) / speech.bytes_per_sample / SAMPLE_RATE)
    if speech.summary is None or player.first_sound is None:
        raise RuntimeError("a speech ended well without audio or summary")
    return Heard(player.first_sound, time.monotonic() - began, player.audio, player.gaps, player.stalls, speech.summary)
