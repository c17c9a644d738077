"""What the vocoder is trained for: spectra near the true ones, and sound that networks cannot
distinguish from speech.

Sources: Kong, Kim, Bae, "HiFi-GAN", 2020 (periods; mel, adversarial and feature losses, their
weights); Jang et al., "UnivNet", 2021 and Kumar et al., "High-fidelity audio compression with
improved RVQGAN", 2023 (complex spectra and mel losses at several resolutions). The networks are
narrower than theirs and used in training only.
"""

import functools
from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from cosyserve.spec import SAMPLE_RATE
from services.frontend.prompts.features.mel import mel_spectrogram, slaney_filterbank

RESOLUTIONS = ((2048, 120), (1024, 80), (512, 40), (256, 20), (128, 10))
"""Transform length in samples and mel bins from 0 to 12 kHz; the hop is a quarter."""
MEL_WEIGHT, FEATURE_WEIGHT = 45.0, 2.0
_FLOOR = 1e-5
PERIODS = (2, 3, 5, 7, 11)
TRANSFORMS = (2048, 1024, 512)
_SLOPE = 0.1
_LOUDNESS_POWER = 0.3


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


def _convolutions(sizes: Iterable[tuple[int, int, tuple[int, int], tuple[int, int]]]) -> nn.ModuleList:
    """(inputs, outputs, kernel, stride) of each, padded so that a stride of 1 keeps the size."""
    return nn.ModuleList(
        weight_norm(nn.Conv2d(inputs, outputs, kernel, stride, padding=(kernel[0] // 2, kernel[1] // 2)))
        for inputs, outputs, kernel, stride in sizes
    )


def _run(layers: nn.ModuleList, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Scores [B, anything] and the activations of the layers before."""
    features = []
    for layer in layers[:-1]:
        # The layout tensor cores work in; the first layer cannot hand it on, having one channel to
        # read.
        x = F.leaky_relu(layer(x).contiguous(memory_format=torch.channels_last), _SLOPE)
        features.append(x)
    return layers[-1](x).flatten(1), features


class PeriodDiscriminator(nn.Module):
    """Looks at every period-th sample, as a picture of samples / period by period."""

    def __init__(self, period: int, width: int) -> None:
        super().__init__()
        self._period = period
        widths = (1, width, 3 * width, 6 * width, 12 * width)
        strided = [(a, b, (5, 1), (3, 1)) for a, b in pairwise(widths)]
        self.layers = _convolutions(
            [*strided, (widths[-1], widths[-1], (5, 1), (1, 1)), (widths[-1], 1, (3, 1), (1, 1))]
        )

    def forward(self, waves: Tensor) -> tuple[Tensor, list[Tensor]]:
        """[B, samples] -> scores and activations."""
        missing = -waves.shape[1] % self._period
        x = F.pad(waves[:, None], (0, missing), mode="reflect") if missing else waves[:, None]
        return _run(self.layers, x.reshape(x.shape[0], 1, -1, self._period))


class SpectrumDiscriminator(nn.Module):
    """Looks at a complex spectrum whose loudness is compressed, so that quiet high frequencies
    count as well.
    """

    def __init__(self, n_fft: int, width: int) -> None:
        super().__init__()
        self._n_fft = n_fft
        strided = [(a, width, (3, 9), (1, 2)) for a in (2, width, width, width)]
        self.layers = _convolutions([*strided, (width, width, (3, 3), (1, 1)), (width, 1, (3, 3), (1, 1))])

    def forward(self, waves: Tensor) -> tuple[Tensor, list[Tensor]]:
        """[B, samples] -> scores and activations."""
        with torch.autocast(waves.device.type, enabled=False):
            window = hann_window(self._n_fft, waves.device)
            spectrum = torch.stft(
                waves.float(), self._n_fft, self._n_fft // 4, self._n_fft, window, return_complex=True
            )
            planes = torch.view_as_real(spectrum).permute(0, 3, 2, 1)
            planes = planes * (planes.square().sum(dim=1, keepdim=True) + 1e-5) ** ((_LOUDNESS_POWER - 1) / 2)
        return _run(self.layers, planes)


class Discriminators(nn.Module):
    """All of them."""

    def __init__(self, width: int = 32) -> None:
        """width: of the first layers of the period discriminators and of all layers of the spectrum
        discriminators.
        """
        super().__init__()
        each = [PeriodDiscriminator(period, width) for period in PERIODS]
        self.each = nn.ModuleList([*each, *(SpectrumDiscriminator(n_fft, width) for n_fft in TRANSFORMS)])

    def forward(self, waves: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """[B, samples] -> the scores of all, the activations of all."""
        scores, features = [], []
        for network in self.each:
            score, maps = network(waves)
            scores.append(score)
            features += maps
        return scores, features
