"""The excitation of causal HiFT: nine waves that follow f0, plus noise, merged into one signal.

A wave has one value for a whole frame, the sine of its phase there: steps that stand still for 20
ms, with which the network was trained. Only noise differs inside a frame. Source: compatibility
specification of CosyVoice3, section 5.3.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.spec import SAMPLE_RATE, SAMPLES_PER_MEL_FRAME
from services.token2wav.vocoder.causal.weights import CausalVocoderConfig
from services.token2wav.vocoder.hift import Weights


class CausalSource:
    """Stateless: noise is an argument, the sum of all steps of phase is passed in and returned."""

    def __init__(self, config: CausalVocoderConfig, weights: Weights, device: torch.device) -> None:
        self._config = config
        self._weight = weights["m_source.l_linear.weight"].to(device)
        self._bias = weights["m_source.l_linear.bias"].to(device)
        self._multiples = torch.arange(1, config.harmonics + 1, dtype=torch.float32, device=device)
        # A tensor, because on CUDA torch multiplies by the reciprocal of a Python number.
        self._rate = torch.full((), SAMPLE_RATE, dtype=torch.float32, device=device)

    def generate(self, f0: Tensor, total: Tensor | None, noise: Tensor) -> tuple[Tensor, Tensor]:
        """f0: [B, n] Hz. total: float64 [B, harmonics], what `waves` returned for the frames
        before, None at the start of a sentence. noise: uniform in [0, 1), [B, 480 n, harmonics].
        Returns the excitation [B, 480 n] and the new total.
        """
        waves, voiced, total = self.waves(f0, total)
        level = voiced * self._config.nsf_sigma + (1 - voiced) * (self._config.nsf_alpha / 3)
        waves, level = (each.repeat_interleave(SAMPLES_PER_MEL_FRAME, dim=1) for each in (waves, level))
        return torch.tanh(F.linear(waves + level * noise, self._weight, self._bias)).squeeze(-1), total

    def waves(self, f0: Tensor, total: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Waves of each frame [B, n, harmonics], zero where unvoiced; the voiced flag [B, n, 1] as
        0 or 1; the total after the last frame.

        The sum runs in float64 and each of its values is rounded to float32, as torch does on a CPU
        for the reference. In float64 it is nearly always exact, so the order of additions, which is
        another one on a GPU, does not matter.
        """
        turns = torch.remainder(f0[..., None] * self._multiples / self._rate, 1.0).to(torch.float64)
        if total is not None:
            turns = torch.cat([total[:, None], turns], dim=1)
        totals = torch.cumsum(turns, dim=1)
        rounded = totals[:, totals.shape[1] - f0.shape[1] :].to(torch.float32)
        # In this order: three roundings to float32.
        phase = rounded * 2 * math.pi * SAMPLES_PER_MEL_FRAME
        voiced = (f0 > self._config.nsf_voiced_threshold).to(torch.float32)[..., None]
        return torch.sin(phase) * self._config.nsf_alpha * voiced, voiced, totals[:, -1]
