"""The excitation of windows of several streams, and the phase of each stream's harmonics, which is
carried from window to window.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from cosyserve.spec import SAMPLE_RATE, SAMPLES_PER_MEL_FRAME
from services.token2wav.gpu.device.launcher import SOUND_TILES, Launcher, ceil, power
from services.token2wav.gpu.kernels.excitation import excitation
from services.token2wav.gpu.kernels.held_excitation import held_excitation, held_waves
from services.token2wav.gpu.kernels.pitch import phases
from services.token2wav.gpu.windowed_vocoder.shapes import WindowShape, count
from services.token2wav.vocoder.weights import VocoderConfig


class _Source(ABC):
    """What all sources have. slots: streams. most: windows. table int32 [7, most]: slot, first
    frame, end, count, two words of the seed, and sentence of each window.
    """

    values: ClassVar[tuple[torch.dtype, ...]]
    """Types of what is computed for every frame and harmonic."""

    def __init__(
        self, config: VocoderConfig, weights: dict[str, Tensor], slots: int, most: int, longest: WindowShape,
        table: Tensor, launch: Launcher,
    ) -> None:  # fmt: skip
        device = table.device
        self.config, self._launch, self._table = config, launch, table
        self._merge = tuple(
            weights[f"m_source.l_linear.{name}"].to(device, torch.float32).flatten().contiguous()
            for name in ("weight", "bias")
        )
        self.phase = torch.zeros(slots, config.harmonics, dtype=torch.float64, device=device)
        """Of each stream, before the frames of its next window whose pitch is used."""
        self._values = [
            torch.zeros(most * longest.pitched * config.harmonics, dtype=kind, device=device) for kind in self.values
        ]
        self._samples = torch.zeros(most * count(longest.source), device=device)

    def __call__(self, f0: Tensor, batch: int, shape: WindowShape) -> Tensor:
        """f0 as `PitchNetwork` returns it -> excitation float32 [batch * count(shape.source)]."""
        samples = count(shape.source)
        block = self._launch.tile("excitation", batch, SOUND_TILES).rows
        self._make(f0, batch, shape, samples, block, (ceil(samples, block), batch))
        return self._samples

    @abstractmethod
    def _make(
        self, f0: Tensor, batch: int, shape: WindowShape, samples: int, block: int, grid: tuple[int, int]
    ) -> None:
        """Compute the samples, in programs of `block` of them."""


class InterpolatedSource(_Source):
    """Phase is linear between the centres of frames: `vocoder.source`. `phase` is in revolutions,
    at the centre of a frame.
    """

    values = (torch.float64, torch.float64)

    def _make(
        self, f0: Tensor, batch: int, shape: WindowShape, samples: int, block: int, grid: tuple[int, int]
    ) -> None:
        config, (slot, first, end, length) = self.config, self._table[:4]
        self._launch(
            phases, (batch,), f0, slot, length, self.phase, *self._values, shape.mel_frames,
            shape.unpitched, shape.pitched,
            RATE=SAMPLE_RATE, HOP=SAMPLES_PER_MEL_FRAME, H=config.harmonics, HP=power(config.harmonics),
            BF=power(shape.pitched),
        )  # fmt: skip
        self._launch(
            excitation, grid, f0, *reversed(self._values), *self._merge, self._samples, first, end,
            self._table[4:], batch, samples, shape.mel_frames, shape.unpitched, shape.pitched,
            self._table.shape[1], shape.source.start, shape.pitched_before, config.nsf_alpha, config.nsf_sigma,
            config.nsf_voiced_threshold,
            H=config.harmonics, HOP=SAMPLES_PER_MEL_FRAME, BLOCK=block,
        )  # fmt: skip


class HeldSource(_Source):
    """A wave has one value for a whole frame: `vocoder.causal.source`. `phase` is the sum of its
    steps.
    """

    values = (torch.float32,)

    def _make(
        self, f0: Tensor, batch: int, shape: WindowShape, samples: int, block: int, grid: tuple[int, int]
    ) -> None:
        config, (slot, first, end, length) = self.config, self._table[:4]
        self._launch(
            held_waves, (batch,), f0, slot, length, self.phase, *self._values, shape.mel_frames, shape.unpitched,
            shape.pitched, config.nsf_alpha, config.nsf_voiced_threshold,
            RATE=SAMPLE_RATE, HOP=SAMPLES_PER_MEL_FRAME, H=config.harmonics, HP=power(config.harmonics),
            BF=power(shape.pitched),
        )  # fmt: skip
        self._launch(
            held_excitation, grid, f0, *self._values, *self._merge, self._samples, first, end, self._table[4:], samples,
            shape.mel_frames, shape.unpitched, shape.pitched, self._table.shape[1], shape.source.start,
            shape.pitched_before, config.nsf_alpha, config.nsf_sigma, config.nsf_voiced_threshold,
            H=config.harmonics, HOP=SAMPLES_PER_MEL_FRAME, BLOCK=block,
        )  # fmt: skip
