"""The two networks of causal HiFT as engines, in place of those of `CausalVocoder`.

An engine keeps no columns between two windows. What is kept of a stream are the inputs that its
next window depends on, frames of mel and samples of the source, and each window computes its
context again.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.spec import SAMPLES_PER_MEL_FRAME
from services.token2wav.engines.runtime import Engine
from services.token2wav.engines.shapes import FRAMES_AROUND, SOURCE_MARGIN, filter_shapes, pitch_shapes
from services.token2wav.engines.slots import Slots, filled
from services.token2wav.engines.vocoder import stretches
from services.token2wav.inputs.request import Stop, never, raise_if_stopped
from services.token2wav.vocoder.causal.convolutions import History
from services.token2wav.vocoder.causal.weights import PITCH, PITCH_LOOKAHEAD, CausalVocoderConfig
from services.token2wav.vocoder.weights import F0_LAYERS

_AROUND = FRAMES_AROUND["causal-hift"]


class CausalEnginePitch:
    """`CausalPitch` by an engine, in float32."""

    def __init__(self, config: CausalVocoderConfig, engine: Engine, slots: Slots) -> None:
        self._engine, self._slots = engine, slots
        self._context = sum(config.f0_kernel(layer) - 1 for layer in range(1, F0_LAYERS))

    def __call__(self, mel: Tensor, history: History) -> Tensor:
        """See `CausalPitch`: [B, 80, n + 3] -> [B, n] float32 in Hz."""
        frames, parts = mel.shape[2] - PITCH_LOOKAHEAD, []
        known, before = _behind_context(PITCH, mel, frames, self._context, history)
        with self._slots.lease() as slot:
            for first, last in stretches(frames):
                begin, end = max(0, before + first - self._context), before + last + PITCH_LOOKAHEAD
                count, length = mel.shape[0], end - begin
                pitch = slot.at(self._engine, pitch_shapes(count, length), {"f0": (count, length)})
                filled(pitch.inputs, {"mel": known[:, :, begin:end]})
                pitch.run()
                parts.append(pitch.outputs["f0"][:, before + first - begin : before + last - begin].clone())
        return torch.cat(parts, dim=1)


class CausalEngineFilter:
    """`CausalFilterNetwork` by an engine."""

    context_frames = _AROUND.before

    def __init__(self, config: CausalVocoderConfig, engine: Engine, slots: Slots) -> None:
        self._engine, self._slots = engine, slots
        self.late = config.n_fft // 2 - config.hop_len - 1
        """See `CausalFilterNetwork`."""

    def __call__(self, mel: Tensor, source: Tensor, history: History, ended: bool, stop: Stop = never) -> Tensor:
        """See `CausalFilterNetwork`. Polls `stop` before each range of frames."""
        frames, parts = mel.shape[2] - _AROUND.ahead, []
        begun = history.begun
        known, before = _behind_context("mel", mel, frames, _AROUND.before, history)
        # The signal begins so many samples before the context, at first with its mirror image.
        source = source if begun else F.pad(source, (SOURCE_MARGIN, 0), mode="reflect")
        passed = SAMPLES_PER_MEL_FRAME * max(0, before + frames - _AROUND.before)
        signal = history.extended_signal("source", source, passed)
        if ended:
            signal = F.pad(signal, (0, SOURCE_MARGIN), mode="reflect")
        with self._slots.lease() as slot:
            for first, last in stretches(frames):
                raise_if_stopped(stop)
                begin, end = max(0, before + first - _AROUND.before), before + last
                count, length = mel.shape[0], end - begin
                shapes = filter_shapes(count, length, _AROUND.ahead)
                network = slot.at(self._engine, shapes, {"samples": (count, SAMPLES_PER_MEL_FRAME * length)})
                margin = slice(SAMPLES_PER_MEL_FRAME * begin, SAMPLES_PER_MEL_FRAME * end + 2 * SOURCE_MARGIN)
                filled(
                    network.inputs,
                    {"mel": known[:, :, begin : end + _AROUND.ahead], "source": signal[:, margin]},
                )
                network.run()
                at = SAMPLES_PER_MEL_FRAME * (before + first - begin) - (self.late if begun or first else 0)
                to = SAMPLES_PER_MEL_FRAME * length - (0 if ended and last == frames else self.late)
                parts.append(network.outputs["samples"][:, at:to].clone())
        return torch.cat(parts, dim=1)


def _behind_context(name: str, mel: Tensor, frames: int, most: int, history: History) -> tuple[Tensor, int]:
    """mel [B, 80, n] behind the frames before it that are kept under this name, and their number.
    Of both, the last `most` of those before frame `frames` of mel are kept instead.
    """
    known = history.extended(name, mel[:, :, :frames], most, zeros=0)
    return torch.cat([known, mel[:, :, frames:]], dim=2), known.shape[2] - frames
