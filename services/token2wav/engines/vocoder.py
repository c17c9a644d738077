"""HiFT's two networks as engines, in place of those of `HiftVocoder`."""

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.spec import SAMPLES_PER_MEL_FRAME
from services.token2wav.engines.runtime import Engine
from services.token2wav.engines.shapes import FRAMES_AROUND, SOURCE_MARGIN, STRETCH_FRAMES, filter_shapes, pitch_shapes
from services.token2wav.engines.slots import Slots, filled
from services.token2wav.inputs.request import Stop, never, raise_if_stopped
from services.token2wav.vocoder.receptive_field import Plan, plan
from services.token2wav.vocoder.source import F0Predictor
from services.token2wav.vocoder.weights import VocoderConfig

_AROUND = FRAMES_AROUND["hift"]


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
