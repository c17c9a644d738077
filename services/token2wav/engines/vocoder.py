"""The two networks of HiFT and of causal HiFT as engines, in place of those of `HiftVocoder` and
`CausalVocoder`.

An engine of causal HiFT keeps no columns between two windows. What is kept of a stream are the
inputs that its next window depends on, frames of mel and samples of the source, and each window
computes its context again.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.spec import SAMPLES_PER_MEL_FRAME
from services.token2wav.engines.runtime import Engine
from services.token2wav.engines.shapes import FRAMES_AROUND, SOURCE_MARGIN, STRETCH_FRAMES, filter_shapes, pitch_shapes
from services.token2wav.engines.slots import Slots, filled
from services.token2wav.inputs.request import Stop, never, raise_if_stopped
from services.token2wav.vocoder.causal.convolutions import History
from services.token2wav.vocoder.causal.weights import PITCH, PITCH_LOOKAHEAD, CausalVocoderConfig
from services.token2wav.vocoder.receptive_field import Plan, plan
from services.token2wav.vocoder.source import F0Predictor
from services.token2wav.vocoder.weights import F0_LAYERS, VocoderConfig

_AROUND, _CAUSAL_AROUND = FRAMES_AROUND["hift"], FRAMES_AROUND["causal-hift"]


class EnginePitch:
    """`F0Predictor` by an engine, in float32. Long sentences are split into ranges of equal length,
    each with its frames of context.
    """

    reach = F0Predictor.reach

    def __init__(self, engine: Engine, slots: Slots) -> None:
        self._engine, self._slots = engine, slots

    def __call__(self, mel: Tensor) -> Tensor:
        """[B, 80, T] -> [B, T] float32 in Hz."""
        frames, parts = mel.shape[2], []
        with self._slots.lease() as slot:
            for first, last in stretches(frames):
                begin, end = max(0, first - self.reach), min(frames, last + self.reach)
                shapes = pitch_shapes(mel.shape[0], end - begin)
                pitch = slot.at(self._engine, shapes, {"f0": (mel.shape[0], end - begin)})
                filled(pitch.inputs, {"mel": mel[:, :, begin:end]})
                pitch.run()
                parts.append(pitch.outputs["f0"][:, first - begin : last - begin].clone())
        return torch.cat(parts, dim=1)


class EngineFilter:
    """`FilterNetwork` by an engine. Each range of samples is computed from the frames and the
    excitation that determine it; the rest of the engine's output is discarded.
    """

    def __init__(self, config: VocoderConfig, engine: Engine, slots: Slots) -> None:
        self._config, self._engine, self._slots = config, engine, slots

    def __call__(self, mel: Tensor, source: Tensor, first: int, last: int, stop: Stop = never) -> Tensor:
        """See `FilterNetwork`: samples [B, 480 * (last - first)] of frames first..last-1. Polls
        `stop` before each range.
        """
        parts = []
        with self._slots.lease() as slot:
            for begin, end in stretches(last - first):
                raise_if_stopped(stop)
                begin, end = first + begin, first + end
                from_frame, to_frame = max(0, begin - _AROUND.before), min(mel.shape[2], end + _AROUND.after)
                count, frames = mel.shape[0], to_frame - from_frame
                network = slot.at(
                    self._engine, filter_shapes(count, frames), {"samples": (count, SAMPLES_PER_MEL_FRAME * frames)}
                )
                excitation = _excitation(source, from_frame, to_frame, mel.shape[2])
                filled(network.inputs, {"mel": mel[:, :, from_frame:to_frame], "source": excitation})
                network.run()
                part = slice(SAMPLES_PER_MEL_FRAME * (begin - from_frame), SAMPLES_PER_MEL_FRAME * (end - from_frame))
                parts.append(network.outputs["samples"][:, part].clone())
        return torch.cat(parts, dim=1)

    def plan(self, first: int, last: int, frames: int) -> Plan:
        """What the samples of frames first..last-1 out of `frames` depend on."""
        return plan(self._config, first, last, frames)


def stretches(frames: int) -> list[tuple[int, int]]:
    """(first, last) of ranges of STRETCH_FRAMES, the last one shorter."""
    return [(first, min(first + STRETCH_FRAMES, frames)) for first in range(0, frames, STRETCH_FRAMES)]


def _excitation(source: Tensor, from_frame: int, to_frame: int, frames: int) -> Tensor:
    """The excitation of a range of frames with a margin on each side: the neighbouring samples or,
    at the ends of the sentence, the mirror image.

    Samples that `source` [B, n] does not contain yet are zeros; the plan ensures that nothing
    depends on them.
    """
    begin, end = SAMPLES_PER_MEL_FRAME * from_frame - SOURCE_MARGIN, SAMPLES_PER_MEL_FRAME * to_frame + SOURCE_MARGIN
    length = SAMPLES_PER_MEL_FRAME * frames
    inside = source[:, max(0, begin) : min(end, length)]
    missing = min(end, length) - max(0, begin) - inside.shape[1]
    inside = F.pad(inside, (0, missing)) if missing else inside
    before, after = max(0, -begin), max(0, end - length)
    return F.pad(inside, (before, after), mode="reflect") if before or after else inside


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

    context_frames = _CAUSAL_AROUND.before

    def __init__(self, config: CausalVocoderConfig, engine: Engine, slots: Slots) -> None:
        self._engine, self._slots = engine, slots
        self.late = config.n_fft // 2 - config.hop_len - 1
        """See `CausalFilterNetwork`."""

    def __call__(self, mel: Tensor, source: Tensor, history: History, ended: bool, stop: Stop = never) -> Tensor:
        """See `CausalFilterNetwork`. Polls `stop` before each range of frames."""
        frames, parts = mel.shape[2] - _CAUSAL_AROUND.ahead, []
        begun = history.begun
        known, before = _behind_context("mel", mel, frames, _CAUSAL_AROUND.before, history)
        # The signal begins so many samples before the context, at first with its mirror image.
        source = source if begun else F.pad(source, (SOURCE_MARGIN, 0), mode="reflect")
        passed = SAMPLES_PER_MEL_FRAME * max(0, before + frames - _CAUSAL_AROUND.before)
        signal = history.extended_signal("source", source, passed)
        if ended:
            signal = F.pad(signal, (0, SOURCE_MARGIN), mode="reflect")
        with self._slots.lease() as slot:
            for first, last in stretches(frames):
                raise_if_stopped(stop)
                begin, end = max(0, before + first - _CAUSAL_AROUND.before), before + last
                count, length = mel.shape[0], end - begin
                shapes = filter_shapes(count, length, _CAUSAL_AROUND.ahead)
                network = slot.at(self._engine, shapes, {"samples": (count, SAMPLES_PER_MEL_FRAME * length)})
                margin = slice(SAMPLES_PER_MEL_FRAME * begin, SAMPLES_PER_MEL_FRAME * end + 2 * SOURCE_MARGIN)
                filled(
                    network.inputs,
                    {"mel": known[:, :, begin : end + _CAUSAL_AROUND.ahead], "source": signal[:, margin]},
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
