"""Fundamental frequency from mel: five convolutions and a linear layer. Source: compatibility
specification section 5.1.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from services.token2wav.vocoder.config import F0_KERNEL, F0_LAYERS


class F0Predictor:
    """Computes in float64: frequency is accumulated into phase, so a rounding difference between
    batch shapes would grow with time. Training compares frequencies only and may use another type.
    """

    reach = F0_LAYERS * (F0_KERNEL // 2)
    """Mel frames of context on each side."""

    def __init__(self, weights: dict[str, Tensor], device: torch.device, dtype: torch.dtype = torch.float64) -> None:
        def read(name: str) -> Tensor:
            return weights[f"f0_predictor.{name}"].to(device, dtype)

        self._dtype = dtype
        self._layers = [(read(f"condnet.{2 * i}.weight"), read(f"condnet.{2 * i}.bias")) for i in range(F0_LAYERS)]
        self._weight, self._bias = read("classifier.weight"), read("classifier.bias")

    def __call__(self, mel: Tensor) -> Tensor:
        """[B, 80, T] -> [B, T] float32 in Hz, not negative. Every layer is zero-padded at both
        ends.
        """
        x = mel.to(self._dtype)
        for at in range(F0_LAYERS):
            x = self.layer(x, at)
        return F.linear(x.transpose(1, 2), self._weight, self._bias).squeeze(-1).abs().to(torch.float32)

    def layer(self, x: Tensor, at: int) -> Tensor:
        """Convolution `at` and its activation, [B, C, T] -> [B, C', T]."""
        weight, bias = self._layers[at]
        return F.elu(F.conv1d(x, weight, bias, padding=F0_KERNEL // 2))
