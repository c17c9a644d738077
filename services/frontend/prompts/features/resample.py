"""Band-limited resampling of prompt audio by a windowed sinc."""

import functools
import math

import torch
from torch import Tensor
from torch.nn import functional as F

ZERO_CROSSINGS = 6
ROLLOFF = 0.99


@functools.lru_cache(maxsize=16)
def _kernels(source: int, target: int, device: torch.device) -> tuple[Tensor, int]:
    """One low-pass filter per output phase, float32 [target, 1, taps], and its reach to the left in
    samples.

    source, target: the two rates divided by their common divisor. Each filter is a sinc that cuts
    at 0.99 of the lower Nyquist frequency under a squared-cosine (Hann) window of six zero
    crossings to each side.
    """
    cutoff = min(source, target) * ROLLOFF
    reach = math.ceil(ZERO_CROSSINGS * source / cutoff)
    taps = torch.arange(-reach, reach + source, dtype=torch.float64) / source
    phases = torch.arange(target, dtype=torch.float64) / target
    crossings = ((taps[None, :] - phases[:, None]) * cutoff).clamp(-ZERO_CROSSINGS, ZERO_CROSSINGS)
    window = torch.cos(crossings * (math.pi / (2 * ZERO_CROSSINGS))).square()
    filters = torch.sinc(crossings) * window * (cutoff / source)
    return filters.to(device, torch.float32)[:, None, :], reach


def resample(wave: Tensor, source_rate: int, target_rate: int) -> Tensor:
    """`wave` at another rate: float32 [batch, samples] to float32 [batch, ceil(samples *
    target_rate / source_rate)].

    Rates in samples per second, positive (ValueError otherwise). Equal rates give `wave` back. Same
    filter as torchaudio's default (sinc_interp_hann, width 6, rolloff 0.99): J. O. Smith, "Digital
    Audio Resampling"; compatibility specification section 2.5.
    """
    if source_rate <= 0 or target_rate <= 0:
        raise ValueError(f"rates are {source_rate} and {target_rate}, expected positive numbers")
    if wave.ndim != 2:
        raise ValueError(f"wave has shape {list(wave.shape)}, expected [batch, samples]")
    if source_rate == target_rate:
        return wave
    divisor = math.gcd(source_rate, target_rate)
    source, target = source_rate // divisor, target_rate // divisor
    filters, reach = _kernels(source, target, wave.device)
    phases = F.conv1d(F.pad(wave[:, None], (reach, reach + source)), filters, stride=source)
    length = -(-wave.shape[1] * target // source)
    return phases.transpose(1, 2).reshape(wave.shape[0], -1)[:, :length]
