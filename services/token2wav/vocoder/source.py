"""Harmonic-plus-noise source: nine sine waves that follow f0, plus noise, merged into one
excitation signal.

The phase is linear between frame centres, so a frame's frequency shapes the samples from the
previous centre to its own; before the first centre and after the last it is constant. The random
initial phase of the published network never affects a sample and is omitted. Source: compatibility
specification section 5.2; Wang, Takaki, Yamagishi, "Neural source-filter waveform models", 2019.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cosyserve import philox
from cosyserve.spec import SAMPLE_RATE, SAMPLES_PER_MEL_FRAME
from services.token2wav.inputs.request import Stop, never, raise_if_stopped
from services.token2wav.vocoder.weights import F0_KERNEL, F0_LAYERS, VocoderConfig


class F0Predictor:
    """Fundamental frequency from mel: five convolutions and a linear layer (compatibility
    specification section 5.1).

    Computes in float64: frequency is accumulated into phase, so a rounding difference between
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


HALF_FRAME = SAMPLES_PER_MEL_FRAME // 2


@dataclass(frozen=True)
class Phase:
    """Phase of the waves at the centre of the last frame computed.

    turns: float64 [B, harmonics], revolutions in [0, 1). f0: float32 [B, 1], Hz.
    """

    turns: Tensor
    f0: Tensor

    def row(self, index: int) -> "Phase":
        """A copy of the phase of one sentence of the batch."""
        return Phase(self.turns[index : index + 1].clone(), self.f0[index : index + 1].clone())


def joined_phases(phases: Sequence[Phase | None]) -> Phase | None:
    """One batch of phases; None if the sentences have just begun."""
    begun = [phase for phase in phases if phase is not None]
    if not begun:
        return None
    return Phase(torch.cat([phase.turns for phase in begun]), torch.cat([phase.f0 for phase in begun]))


class Source:
    """Stateless: the noise is an argument, the phase is passed in and returned."""

    def __init__(self, config: VocoderConfig, weights: dict[str, Tensor], device: torch.device) -> None:
        self._config = config
        self._weight = weights["m_source.l_linear.weight"].to(device)
        self._bias = weights["m_source.l_linear.bias"].to(device)
        self._multiples = torch.arange(1, config.harmonics + 1, dtype=torch.float32, device=device)
        # A tensor, because on CUDA torch multiplies by the reciprocal of a Python number. Phases
        # accumulate and would drift from the CPU's. Filled on the device: the vocoder's training
        # records this in a CUDA graph, which no copy from the host can be part of.
        self._rate = torch.full((), SAMPLE_RATE, dtype=torch.float32, device=device)
        steps = torch.arange(SAMPLES_PER_MEL_FRAME, dtype=torch.float64, device=device)
        self._fraction = ((steps + 0.5) / SAMPLES_PER_MEL_FRAME)[:, None]

    @staticmethod
    def span(frames_before: int, frames: int, ended: bool) -> tuple[int, int]:
        """First sample, and the end, of what `generate` computes for `frames` frames after
        `frames_before` others.
        """
        first = SAMPLES_PER_MEL_FRAME * frames_before - HALF_FRAME if frames_before else 0
        return first, SAMPLES_PER_MEL_FRAME * (frames_before + frames) - (0 if ended else HALF_FRAME)

    def generate(self, f0: Tensor, before: Phase | None, noise: Tensor, ended: bool) -> tuple[Tensor, Phase]:
        """The samples that new frames determine.

        f0: [B, n] Hz, n > 0. before: the phase after the previous frames, None at the start of a
        sentence. noise: standard normal [B, count, harmonics] for the samples of `span`; half a
        frame more if the sentence has `ended`. Returns [B, count] and the phase.
        """
        waves, voiced, phase = self.waves(f0, before, ended)
        config = self._config
        level = voiced * config.nsf_sigma + (1 - voiced) * (config.nsf_alpha / 3)
        return torch.tanh(F.linear(waves + level * noise, self._weight, self._bias)).squeeze(-1), phase

    def waves(self, f0: Tensor, before: Phase | None, ended: bool) -> tuple[Tensor, Tensor, Phase]:
        """Sine waves [B, count, harmonics], zero where unvoiced; the voiced flag [B, count, 1] as 0
        or 1; the phase after them.
        """
        turns_per_sample = torch.remainder(f0[..., None] * self._multiples / self._rate, 1.0).to(torch.float64)
        turns = turns_per_sample * SAMPLES_PER_MEL_FRAME
        centres = torch.cumsum(turns, dim=1)
        if before is not None:
            centres = centres + before.turns[:, None]
        centres = torch.remainder(centres, 1.0)
        pieces = []
        if before is None:
            pieces.append(centres[:, :1].expand(-1, HALF_FRAME, -1))
            left, moves = centres[:, :-1], turns[:, 1:]
        else:
            left, moves = torch.cat([before.turns[:, None], centres[:, :-1]], dim=1), turns
        pieces.append((left[:, :, None] + moves[:, :, None] * self._fraction).flatten(1, 2))
        if ended:
            pieces.append(centres[:, -1:].expand(-1, HALF_FRAME, -1))
        sines = torch.sin(torch.cat(pieces, dim=1) * (2 * math.pi)).to(torch.float32)
        held = f0 if before is None else torch.cat([before.f0, f0], dim=1)
        voiced = (
            (held > self._config.nsf_voiced_threshold).to(torch.float32).repeat_interleave(SAMPLES_PER_MEL_FRAME, dim=1)
        )
        first = 0 if before is None else HALF_FRAME
        voiced = voiced[:, first : first + sines.shape[1], None]
        return sines * self._config.nsf_alpha * voiced, voiced, Phase(centres[:, -1], f0[:, -1:])


Draw = Callable[[int, int, int, int, int], NDArray[np.float32]]
"""Of `cosyserve.philox`: key, stream, first row, rows, columns -> [rows, columns]."""


def source_noise(
    seed: int, sentence: int, first: int, end: int, harmonics: int, stop: Stop = never, draw: Draw = philox.normal
) -> Tensor:
    """Random draws, standard normal unless `draw` makes others: float32 [end - first, harmonics] on
    the CPU, for the samples first..end-1 of a sentence.

    The draws depend only on their absolute position, so drawing a second at a time gives the same
    values. `stop` is polled before each second: raises Cancelled if it returns True.
    """
    seconds = []
    for at in range(first, max(end, first + 1), SAMPLE_RATE):
        raise_if_stopped(stop)
        seconds.append(torch.from_numpy(draw(seed, sentence, at, min(SAMPLE_RATE, end - at), harmonics)))
    return torch.cat(seconds)
