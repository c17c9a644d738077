"""Triangular mel filters on Slaney's scale (Auditory Toolbox, 1998: linear up to 1 kHz, logarithmic
above), each of unit area.
"""

import math

import torch
from torch import Tensor

_HERTZ_PER_MEL = 200.0 / 3.0
_BREAK_HERTZ = 1000.0
_BREAK_MEL = _BREAK_HERTZ / _HERTZ_PER_MEL
_LOG_STEP = math.log(6.4) / 27.0


def _to_mel(hertz: float) -> float:
    if hertz < _BREAK_HERTZ:
        return hertz / _HERTZ_PER_MEL
    return _BREAK_MEL + math.log(hertz / _BREAK_HERTZ) / _LOG_STEP


def _to_hertz(mel: Tensor) -> Tensor:
    return torch.where(mel < _BREAK_MEL, mel * _HERTZ_PER_MEL, _BREAK_HERTZ * torch.exp(_LOG_STEP * (mel - _BREAK_MEL)))


def slaney_filterbank(sample_rate: int, n_fft: int, bins: int, lowest_hertz: float, highest_hertz: float) -> Tensor:
    """float32 [bins, n_fft // 2 + 1]: weights that turn an STFT column into mel bins.

    Computed in float64 and rounded once.
    """
    edges = _to_hertz(torch.linspace(_to_mel(lowest_hertz), _to_mel(highest_hertz), bins + 2, dtype=torch.float64))
    frequencies = torch.linspace(0.0, sample_rate / 2, n_fft // 2 + 1, dtype=torch.float64)
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising = (frequencies - left) / (centre - left)
    falling = (right - frequencies) / (right - centre)
    weights = torch.minimum(rising, falling).clamp(min=0.0) * (2.0 / (right - left))
    return weights.to(torch.float32)
