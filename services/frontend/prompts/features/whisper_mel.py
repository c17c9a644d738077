"""Whisper's log-mel in 128 bins, the input of the speech tokenizer."""

import functools

import torch
from torch import Tensor

from services.frontend.prompts.features.mel import slaney_filterbank

RATE = 16_000
BINS = 128
N_FFT = 400
HOP = 160
_DYNAMIC_RANGE = 8.0


@functools.cache
def whisper_filters(device: torch.device) -> Tensor:
    """float32 [128, 201]: Slaney filters from 0 to 8000 Hz at 16 kHz."""
    return slaney_filterbank(RATE, N_FFT, BINS, 0.0, RATE / 2).to(device)


def whisper_log_mel(wave: Tensor, hop: int = HOP) -> Tensor:
    """Scaled decimal-log mel powers, float32 [batch, 128, samples // hop], a frame every
    `hop` samples: 100 a second by default.

    wave: float32 [batch, samples] in [-1, 1] at 16 kHz, more than 200 samples (ValueError
    otherwise); it is not padded to 30 s. Values more than 8 decades under the loudest of their row
    are raised to that floor, then mapped by (x + 4) / 4. Source: compatibility specification
    section 2.5 (after openai-whisper).
    """
    if wave.ndim != 2 or wave.shape[1] <= N_FFT // 2:
        raise ValueError(
            f"wave has shape {list(wave.shape)}, expected [batch, samples] with more than {N_FFT // 2} samples"
        )
    spectrum = torch.stft(
        wave,
        N_FFT,
        hop,
        N_FFT,
        torch.hann_window(N_FFT, device=wave.device),
        center=True,
        pad_mode="reflect",
        return_complex=True,
    )
    power = spectrum[..., :-1].abs().square()
    decades = torch.log10(torch.clamp(whisper_filters(wave.device) @ power, min=1e-10))
    return (torch.maximum(decades, decades.amax(dim=(1, 2), keepdim=True) - _DYNAMIC_RANGE) + 4.0) / 4.0
