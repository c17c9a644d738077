"""The embedding of a time of the flow, as both estimators use it: sinusoids, then two linear maps
(Vaswani et al., "Attention Is All You Need", 2017, for the sinusoids).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.layers import Linear


class TimeEmbedding:
    """first: [width, sinusoids]; second: [width, width]."""

    def __init__(self, first: Linear, second: Linear) -> None:
        self._first, self._second = first, second
        self.width_in = first.weight.shape[1]

    def sinusoid(self, t: Tensor) -> Tensor:
        """t [rows] in 0..1 -> float32 [rows, sinusoids]: sines, then cosines, of 1000 t."""
        half = self.width_in // 2
        exponent = torch.arange(half, dtype=torch.float32, device=t.device) * -(math.log(10000.0) / (half - 1))
        # A thousand times the last place of a rate is seen in its sine, and in float32 processors
        # differ in it.
        rate = exponent.double().exp().float()
        angle = 1000.0 * t.float()[:, None] * rate
        return torch.cat((angle.sin(), angle.cos()), dim=1)

    def __call__(self, t: Tensor) -> Tensor:
        """t [rows] in 0..1 -> [rows, width]."""
        return self._second(F.silu(self._first(self.sinusoid(t).to(self._first.weight.dtype))))
