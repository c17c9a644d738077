"""The mel spectrogram of a prompt, as the flow was trained on it, by triangular mel filters on
Slaney's scale (Auditory Toolbox, 1998: linear up to 1 kHz, logarithmic above), each of unit area.
"""

import functools
import math

import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.spec import MEL_BINS, SAMPLE_RATE, SAMPLES_PER_MEL_FRAME

_HERTZ_PER_MEL = 200.0 / 3.0
_BREAK_HERTZ = 1000.0
_BREAK_MEL = _BREAK_HERTZ / _HERTZ_PER_MEL
_LOG_STEP = math.log(6.4) / 27.0


def _to_mel(hertz: float) -> float:
    linear = hertz < _BREAK_HERTZ
    return hertz / _HERTZ_PER_MEL if linear else _BREAK_MEL + math.log(hertz / _BREAK_HERTZ) / _LOG_STEP


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
    return (torch.minimum(rising, falling).clamp(min=0.0) * (2.0 / (right - left))).to(torch.float32)


N_FFT = 1920
HIGHEST_HERTZ = 8000.0
"""Of CosyVoice2; other generations have another (`Generation.mel_highest_hertz`)."""
_MARGIN = (N_FFT - SAMPLES_PER_MEL_FRAME) // 2


@functools.cache
@torch.inference_mode(mode=False)  # the first caller may serve; a training could not use what it made
def mel_basis(device: torch.device, highest_hertz: float = HIGHEST_HERTZ) -> Tensor:
    """float32 [80, 961]: Slaney filters from 0 to `highest_hertz` at 24 kHz."""
    return slaney_filterbank(SAMPLE_RATE, N_FFT, MEL_BINS, 0.0, highest_hertz).to(device)


def mel_spectrogram(wave: Tensor, highest_hertz: float = HIGHEST_HERTZ) -> Tensor:
    """Natural-log mel magnitudes, float32 [batch, 80, samples // 480], 50 frames a second.
    highest_hertz: upper edge of the filters.

    wave: float32 [batch, samples] in [-1, 1] at 24 kHz, more than 720 samples (ValueError
    otherwise). Frames are centred by reflecting 720 samples at both ends; magnitudes carry 1e-9
    under the root and mel values are floored at 1e-5. Source: compatibility specification section
    2.5 (after Matcha-TTS).
    """
    if wave.ndim != 2 or wave.shape[1] <= _MARGIN:
        raise ValueError(
            f"wave has shape {list(wave.shape)}, expected [batch, samples] with more than {_MARGIN} samples"
        )
    padded = F.pad(wave[:, None], (_MARGIN, _MARGIN), mode="reflect")[:, 0]
    window = torch.hann_window(N_FFT, device=wave.device)
    spectrum = torch.stft(padded, N_FFT, SAMPLES_PER_MEL_FRAME, N_FFT, window, center=False, return_complex=True)
    magnitude = torch.sqrt(spectrum.real.square() + spectrum.imag.square() + 1e-9)
    return torch.log(torch.clamp(mel_basis(wave.device, highest_hertz) @ magnitude, min=1e-5))
