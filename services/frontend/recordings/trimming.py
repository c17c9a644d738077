"""Trims the silence at both ends of a recording; otherwise the voice would reproduce it."""

import numpy as np

from cosyserve.errors import InvalidRequest
from services.frontend.recordings.sound import SHORTEST_SECONDS
from services.frontend.recordings.wav_reader import Sound

BELOW_LOUDEST = 0.01
"""A window is silence when its root mean square is below this share of the loudest window's: 40 dB.
Room noise can exceed a fixed limit.
"""
_WINDOWS_PER_SECOND = 100
_MARGIN_BEFORE, _MARGIN_AFTER = 0.1, 0.2
"""Seconds of silence that stay, for soft consonants and the breath after the last word."""


def trim_silence(sound: Sound) -> Sound:
    """`sound` without the silence at its ends. Raises InvalidRequest when less than a second
    remains.
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
