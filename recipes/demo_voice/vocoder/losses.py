"""How far generated sound is from the true one.

Sources: Kong, Kim, Bae, "HiFi-GAN", 2020 (mel, adversarial and feature losses, their weights);
Kumar et al., "High-fidelity audio compression with improved RVQGAN", 2023 (mel losses at several
resolutions).
"""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from cosyserve.spec import SAMPLE_RATE
from services.frontend.prompts.features.mel import mel_spectrogram, slaney_filterbank

RESOLUTIONS = ((2048, 120), (1024, 80), (512, 40), (256, 20), (128, 10))
"""Transform length in samples and mel bins from 0 to 12 kHz; the hop is a quarter."""
MEL_WEIGHT, FEATURE_WEIGHT = 45.0, 2.0
_FLOOR = 1e-5


@functools.cache
def hann_window(length: int, device: torch.device) -> Tensor:
    """Periodic, float32 [length]; made once."""
    return torch.hann_window(length, device=device)


@functools.cache
def _filters(n_fft: int, bins: int, device: torch.device) -> Tensor:
    return slaney_filterbank(SAMPLE_RATE, n_fft, bins, 0.0, SAMPLE_RATE / 2).to(device)


def magnitudes(waves: Tensor, n_fft: int) -> Tensor:
    """float32 [B, samples] -> [B, n_fft / 2 + 1, frames], hop n_fft / 4; never zero, so that the
    root has a slope.
    """
    spectrum = torch.stft(waves, n_fft, n_fft // 4, n_fft, hann_window(n_fft, waves.device), return_complex=True)
    return torch.sqrt(spectrum.real.square() + spectrum.imag.square() + 1e-9)


def mels(waves: Tensor) -> list[Tensor]:
    """The mel the vocoder is fed with, then log-mels of all resolutions."""
    spectrograms = [mel_spectrogram(waves)]
    for n_fft, bins in RESOLUTIONS:
        spectrograms.append(
            torch.log((_filters(n_fft, bins, waves.device) @ magnitudes(waves, n_fft)).clamp(min=_FLOOR))
        )
    return spectrograms


def mel_distance(generated: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """Mean absolute differences of log-mels of [B, samples]: of the vocoder's own mel, and the mean
    over the other resolutions.
    """
    with torch.no_grad():
        wanted = mels(true)
    own, *others = [(a - b).abs().mean() for a, b in zip(mels(generated), wanted, strict=True)]
    return own, torch.stack(others).mean()


def spectral_distance(generated: Tensor, true: Tensor) -> Tensor:
    """Mean absolute difference of natural-log magnitudes of [B, samples] over transforms of 512,
    1024 and 2048 samples.
    """
    pairs = [(magnitudes(generated, n_fft), magnitudes(true, n_fft)) for n_fft in (512, 1024, 2048)]
    return torch.stack(
        [(torch.log(a.clamp(min=1e-4)) - torch.log(b.clamp(min=1e-4))).abs().mean() for a, b in pairs]
    ).mean()


def judged(scores: Sequence[Tensor], real: int) -> Tensor:
    """Least-squares loss of the discriminators: the first `real` rows of each score should be 1,
    the others 0.
    """
    return torch.stack(
        [(1 - x[:real].float()).square().mean() + x[real:].float().square().mean() for x in scores]
    ).sum()


def convincing(scores: Sequence[Tensor], real: int) -> Tensor:
    """Least-squares loss of the generator: every row after the first `real` should be 1."""
    return torch.stack([(1 - x[real:].float()).square().mean() for x in scores]).sum()


def feature_distance(features: Sequence[Tensor], real: int) -> Tensor:
    """Sum over layers of the mean absolute difference between the rows after the first `real`, and
    those, which count as constant.
    """
    return torch.stack([(x[real:] - x[:real].detach()).abs().mean(dtype=torch.float32) for x in features]).sum()
