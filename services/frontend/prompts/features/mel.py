"""The mel spectrogram of a prompt, as the flow was trained on it."""

import functools

import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.spec import MEL_BINS, SAMPLE_RATE, SAMPLES_PER_MEL_FRAME
from services.frontend.prompts.features.mel import slaney_filterbank

N_FFT = 1920
HIGHEST_HERTZ = 8000.0
_MARGIN = (N_FFT - SAMPLES_PER_MEL_FRAME) // 2


@functools.cache
def mel_basis(device: torch.device) -> Tensor:
    """float32 [80, 961]: Slaney filters from 0 to 8000 Hz at 24 kHz."""
    return slaney_filterbank(SAMPLE_RATE, N_FFT, MEL_BINS, 0.0, HIGHEST_HERTZ).to(device)


def mel_spectrogram(wave: Tensor) -> Tensor:
    """Natural-log mel magnitudes, float32 [batch, 80, samples // 480], 50 frames a second.

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
    return torch.log(torch.clamp(mel_basis(wave.device) @ magnitude, min=1e-5))
