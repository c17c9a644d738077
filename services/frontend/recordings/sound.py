"""A decoded recording: the rates and lengths that are checked before its samples are read, and the
removal of the silence at its ends.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import InvalidRequest

SHORTEST_SECONDS, LONGEST_SECONDS = 1, 30
LOWEST_RATE, HIGHEST_RATE, RATE_STEP = 16_000, 192_000, 50
"""Sound cards use multiples of 50. For a rate without a common divisor with 24,000 the resampler's
filters would take gigabytes.
"""
MOST_CHANNELS = 2
MOST_BYTES = 10 * 1024 * 1024
"""Size of the uploaded file."""
BELOW_LOUDEST = 0.01
"""A window is silence when its root mean square is below this share of the loudest window's: 40 dB.
Room noise can exceed a fixed limit.
"""
_WINDOWS_PER_SECOND = 100
_MARGIN_BEFORE, _MARGIN_AFTER = 0.1, 0.2
"""Seconds of silence that stay, for soft consonants and the breath after the last word."""


@dataclass(frozen=True)
class Sound:
    """samples: float32 [n], one channel, full scale at 1. rate: samples per second."""

    samples: NDArray[np.float32]
    rate: int


def require_rate(rate: int) -> None:
    """Raise InvalidRequest for a sample rate outside 16,000 to 192,000 in steps of 50
    (compatibility specification section 2.5).
    """
    if not LOWEST_RATE <= rate <= HIGHEST_RATE or rate % RATE_STEP:
        raise InvalidRequest(
            f"the recording has a sample rate of {rate}, allowed {LOWEST_RATE} to {HIGHEST_RATE} in steps of "
            f"{RATE_STEP}"
        )


def require_length(samples: int, rate: int) -> None:
    """Raise InvalidRequest unless `samples` at `rate` per second last 1 to 30 s."""
    if not SHORTEST_SECONDS * rate <= samples <= LONGEST_SECONDS * rate:
        raise InvalidRequest(
            f"the recording lasts {samples / rate:.2f} s ({samples} samples at {rate} a second), allowed "
            f"{SHORTEST_SECONDS} to {LONGEST_SECONDS} s"
        )


def require_channels(channels: int) -> None:
    """Raise InvalidRequest unless there are one or two."""
    if not 1 <= channels <= MOST_CHANNELS:
        raise InvalidRequest(f"the recording has {channels} channels, allowed 1 to {MOST_CHANNELS}")


def trim_silence(sound: Sound) -> Sound:
    """`sound` without the silence at its ends, which the voice would reproduce. Raises
    InvalidRequest when less than a second remains.
    """
    length = sound.rate // _WINDOWS_PER_SECOND
    windows = sound.samples[: len(sound.samples) // length * length].reshape(-1, length)
    # The standard deviation excludes the DC offset of a microphone.
    power = windows.astype(np.float64).std(axis=1)
    loud = np.flatnonzero(power >= BELOW_LOUDEST * power.max(initial=0.0))
    if len(loud) == 0:
        return sound
    start = max(0, loud[0] * length - round(_MARGIN_BEFORE * sound.rate))
    stop = min(len(sound.samples), (loud[-1] + 1) * length + round(_MARGIN_AFTER * sound.rate))
    if stop - start < SHORTEST_SECONDS * sound.rate:
        raise InvalidRequest(
            f"the recording is too short: {(stop - start) / sound.rate:.2f} s are left of "
            f"{len(sound.samples) / sound.rate:.2f} s when the "
            f"silence at both ends is taken off, allowed from {SHORTEST_SECONDS} s"
        )
    return Sound(sound.samples[start:stop], sound.rate)
