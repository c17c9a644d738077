"""Fundamental frequency of windows of several streams: the arithmetic of
`vocoder.source.F0Predictor` and `vocoder.causal.pitch.CausalPitch`, in float64 as well.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.spec import MEL_BINS
from services.token2wav.gpu.device.launcher import SOUND_TILES, Launcher, ceil, power
from services.token2wav.gpu.kernels.pitch import from_ring, pitch, pitch_layer
from services.token2wav.gpu.windowed_vocoder.convolutions import Lead
from services.token2wav.gpu.windowed_vocoder.shapes import WindowShape
from services.token2wav.vocoder.weights import F0_LAYERS

_MARGIN = 4
"""At least the frames that a layer reads beyond either edge."""
_WHOLE = 32
"""Channels are zero-padded to a multiple of this."""


class PitchNetwork:
    """Weights, and buffers for `rows` frames. leads: of the first layer, and of the others."""

    def __init__(
        self, weights: dict[str, Tensor], rows: int, device: torch.device, launch: Launcher, leads: tuple[Lead, Lead]
    ) -> None:
        def read(name: str) -> Tensor:
            return weights[f"f0_predictor.{name}"].to(device, torch.float64)

        self._launch, self._layers = launch, []
        for layer in range(F0_LAYERS):
            weight, bias = read(f"condnet.{2 * layer}.weight"), read(f"condnet.{2 * layer}.bias")
            out, channels = (ceil(size, _WHOLE) * _WHOLE for size in weight.shape[:2])
            weight = F.pad(weight, (0, 0, 0, channels - weight.shape[1], 0, out - weight.shape[0]))
            lead = leads[min(layer, 1)](weight.shape[2], 1)
            self._layers.append((weight.permute(2, 1, 0).contiguous(), F.pad(bias, (0, out - len(bias))), lead))
        widest = max(max(weight.shape[1:]) for weight, _, _ in self._layers)
        weight = read("classifier.weight").flatten()
        self._weight = F.pad(weight, (0, self._layers[-1][0].shape[2] - len(weight)))
        self._bias = read("classifier.bias")
        # Layers read beyond the edges; results there are not used.
        self._buffers = [
            torch.zeros((rows + 2 * _MARGIN) * widest, dtype=torch.float64, device=device) for _ in range(2)
        ]
        self._f0 = torch.zeros(rows, device=device)

    def __call__(
        self,
        ring: Tensor,
        mel: Tensor,
        width: int,
        slot: Tensor,
        first: Tensor,
        end: Tensor,
        batch: int,
        shape: WindowShape,
    ) -> Tensor:
        """ring float32 [slots, frames, 80] -> Hz float32 [batch * shape.mel_frames], valid for
        the `pitched` frames of each window behind its `unpitched` ones. Also copies the frames to
        mel [rows, width].
        """
        rows, frames, before = batch * shape.mel_frames, shape.mel_frames, shape.frames_before
        channels = self._layers[0][0].shape[1]
        x = self._buffers[0][_MARGIN * channels :]
        self._launch(
            from_ring, (ceil(rows, 16),), ring, slot, first, end, mel, x, rows, frames, before,
            RING=ring.shape[1], BINS=MEL_BINS, WIDTH=width, EXACT=channels, BM=16,
        )  # fmt: skip
        for at, (weight, bias, lead) in enumerate(self._layers):
            taps, c, n = weight.shape
            out = self._buffers[1 - at % 2][_MARGIN * n :]
            tile = self._launch.tile("pitch", rows, SOUND_TILES)
            bm, bn = tile.rows, math.gcd(tile.columns, n)
            self._launch(
                pitch_layer, (ceil(rows, bm), n // bn), x, weight, bias, out, first, end, rows, frames, before, C=c,
                N=n, TAPS=taps, LEAD=lead, BM=bm,
                BN=bn, BK=math.gcd(tile.inner, c), warps=tile.warps, stages=tile.stages,
            )  # fmt: skip
            x = out
        self._launch(
            pitch, (ceil(rows, 4),), x, self._weight, self._bias, self._f0, first, end, rows, frames, before,
            C=len(self._weight),
            CP=power(len(self._weight)), BM=4,
        )  # fmt: skip
        return self._f0
