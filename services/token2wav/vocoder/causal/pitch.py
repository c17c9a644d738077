"""Fundamental frequency from mel that arrives piece by piece.

Source: compatibility specification of CosyVoice3, section 5.2.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from services.token2wav.vocoder.causal.convolutions import History
from services.token2wav.vocoder.causal.weights import PITCH, CausalVocoderConfig
from services.token2wav.vocoder.hift import Weights
from services.token2wav.vocoder.weights import F0_LAYERS


class CausalPitch:
    """Five convolutions, of which the first looks three frames ahead and the others back, and a
    linear layer; in float64, because frequency is accumulated into phase.
    """

    def __init__(self, config: CausalVocoderConfig, weights: Weights, device: torch.device) -> None:
        def read(name: str) -> Tensor:
            return weights[f"{PITCH}{name}"].to(device, torch.float64)

        self._layers = [(read(f"condnet.{2 * i}.weight"), read(f"condnet.{2 * i}.bias")) for i in range(F0_LAYERS)]
        self._before = [config.f0_kernel(i) - 1 for i in range(F0_LAYERS)]
        self._weight, self._bias = read("classifier.weight"), read("classifier.bias")

    def __call__(self, mel: Tensor, history: History) -> Tensor:
        """[B, 80, n + 3], the frames and the three after them -> [B, n] float32 in Hz."""
        return self.exact(mel, history).to(torch.float32)

    def exact(self, mel: Tensor, history: History) -> Tensor:
        """The same before rounding, float64."""
        x = mel.to(torch.float64)
        for at in range(F0_LAYERS):
            x = self.layer(x, at, history)
        return F.linear(x.transpose(1, 2), self._weight, self._bias).squeeze(-1).abs()

    def layer(self, x: Tensor, at: int, history: History) -> Tensor:
        """Convolution `at` and its activation, [B, C, T] -> [B, C', T]; the first one gets three
        frames more than it makes.
        """
        weight, bias = self._layers[at]
        if at:
            x = history.extended(f"{PITCH}{at}", x, self._before[at])
        return F.elu(F.conv1d(x, weight, bias))
