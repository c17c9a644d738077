"""Networks that distinguish speech from generated sound; used in training only.

Sources: Kong, Kim, Bae, "HiFi-GAN", 2020 (periods); Jang et al., "UnivNet", 2021 and Kumar et al.,
"High-fidelity audio compression with improved RVQGAN", 2023 (complex spectra at several
resolutions). Narrower than theirs.
"""

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from recipes.demo_voice.vocoder.objective import hann_window

PERIODS = (2, 3, 5, 7, 11)
TRANSFORMS = (2048, 1024, 512)
_SLOPE = 0.1
_LOUDNESS_POWER = 0.3


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
        inputs = (2, width, width, width)
        strided = [(a, width, (3, 9), (1, 2)) for a in inputs]
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
