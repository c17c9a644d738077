"""The requirements on a recording before it becomes a voice."""

import torch
from torch import Tensor

from cosyserve.errors import InvalidRequest
from services.frontend.recordings.sound import require_length, require_rate

QUIETEST = 0.003
"""Root mean square of the loudest 0.1 s, about -50 dBFS: quiet speech is louder, a silent
microphone is not.
"""
FULL_SCALE = 0.999
MOST_CLIPPED = 0.001
"""Share of samples at full scale or beyond. Normalised speech reaches it in single samples."""
_WINDOWS_PER_SECOND = 10


def check_recording(wave: Tensor, rate: int) -> None:
    """Raise InvalidRequest unless `wave` is suitable for a voice; the message gives the problem,
    its position and the allowed range.

    wave: float32 [samples], mono, full scale at 1 (ValueError for another shape or type). rate:
    samples per second, 16,000 to 192,000 in steps of 50. 1 to 30 s, finite, neither silent
    (`QUIETEST`) nor clipped (`MOST_CLIPPED`). The maximum length and the minimum rate are those of
    compatibility specification section 2.5.
    """
    if wave.ndim != 1 or wave.dtype != torch.float32:
        raise ValueError(f"wave is {wave.dtype} of shape {list(wave.shape)}, expected float32 [samples]")
    require_rate(rate)
    require_length(len(wave), rate)
    if not bool(torch.isfinite(wave).all()):
        place = int(torch.isfinite(wave).int().argmin())
        raise InvalidRequest(
            f"the recording is {wave[place].item()} at sample {place}, expected finite samples from -1 to 1"
        )
    if (loudest := _loudest(wave, rate)) < QUIETEST:
        raise InvalidRequest(
            f"the recording is silent: its loudest 0.1 s has a root mean square of {loudest:.5f}, allowed from "
            f"{QUIETEST}"
        )
    clipped = wave.abs() >= FULL_SCALE
    if (share := int(clipped.sum()) / len(wave)) > MOST_CLIPPED:
        where = f"the first at {int(clipped.int().argmax()) / rate:.2f} s"
        counted = f"{100 * share:.2f} % of its samples lie at full scale ({FULL_SCALE} or beyond), {where}"
        raise InvalidRequest(f"the recording is clipped: {counted}; allowed {100 * MOST_CLIPPED:g} %")


def _loudest(wave: Tensor, rate: int) -> float:
    """Root mean square of the loudest 0.1 s, without its DC offset."""
    length = rate // _WINDOWS_PER_SECOND
    windows = wave[: len(wave) // length * length].reshape(-1, length)
    # The mean of the whole recording may overflow, so each window removes its own.
    return float(windows.double().std(dim=1, correction=0).max())
