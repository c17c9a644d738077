"""Windows to render on a GPU: the ranges of every layer that a window needs, relative to its first
frame, and how windows are grouped into batches.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cosyserve.spec import CHUNK_FRAMES, SAMPLES_PER_MEL_FRAME
from services.token2wav.vocoder.receptive_field import Span, context, plan
from services.token2wav.vocoder.source import F0Predictor
from services.token2wav.vocoder.weights import VocoderConfig

_FAR = 1000
"""A frame far from both ends, so that no span is cut."""


@dataclass(frozen=True)
class LevelShape:
    """groups: positions of the upsampling, `rate` columns each. raised: column of the first of them
    in `merged`'s layer, groups.start * rate - trim, plus one in the last level. excitation, merged:
    as in the plan.
    """

    groups: Span
    raised: int
    excitation: Span
    merged: Span


class WindowShape:
    """For windows of `frames` frames. pitched_before: frames before the window whose pitch is used.
    frames_before: frames before the window whose mel is used.
    """

    def __init__(self, config: VocoderConfig, frames: int) -> None:
        walk, reach, hop = plan(config, _FAR, _FAR + frames, 2 * _FAR), F0Predictor.reach, SAMPLES_PER_MEL_FRAME
        self.frames = frames
        self.source = _from(walk.source, _FAR * hop)
        # The phase of a sample in the first half of a frame starts at the centre of the frame
        # before.
        self.pitched_before = -((self.source.start - hop // 2) // hop) + 1
        self.frames_before = self.pitched_before + reach
        self.mel_frames = self.frames_before + frames + context(config).hold_back(reach)
        per_frame = hop // config.hop_len
        self.spectrum, self.post = _from(walk.spectrum, _FAR * per_frame), _from(walk.post, _FAR * per_frame)
        self.inputs = _from(walk.levels[0].inputs, _FAR)
        self.levels: list[LevelShape] = []
        for level, at in enumerate(walk.levels):
            rate, far = config.upsample_rates[level], _FAR * math.prod(config.upsample_rates[: level + 1])
            trim, late = (config.upsample_kernel_sizes[level] - rate) // 2, int(level == config.levels - 1)
            raised = _from(at.raised, far)
            groups = Span((raised.start + trim) // rate, (raised.stop - 1 + trim) // rate + 1)
            self.levels.append(
                LevelShape(groups, groups.start * rate - trim + late, _from(at.excitation, far), _from(at.merged, far))
            )


def _from(span: Span, origin: int) -> Span:
    return Span(span.start - origin, span.stop - origin)


def count(span: Span) -> int:
    """Number of columns."""
    return span.stop - span.start


WINDOW_FRAMES = CHUNK_FRAMES


@dataclass(frozen=True)
class Render:
    """Samples of `count` (1..50) frames from `first` on. end: frames of the sentence, None while
    more may arrive.
    """

    slot: int
    first: int
    count: int
    end: int | None
    seed: int
    sentence: int


_AROUND, _ALONE = 7, 150
"""Cost of a window in addition to its own frames, and of a batch in addition to its windows, in
frames: an H200 takes 2.2 us for one.
"""


def batches(counts: Sequence[int], lengths: Sequence[int], buckets: Sequence[int]) -> list[tuple[int, list[int]]]:
    """How windows of `counts` frames are rendered: lengths, and the indices of the windows in each
    batch, in order of length.

    Short windows are rendered separately if that is less work than padding them to long ones; a
    batch is as large as the bucket that holds it.
    """
    ascending, largest = sorted(lengths), max(buckets)

    def cost(frames: int, windows: int) -> int:
        whole, rest = divmod(windows, largest)
        sizes = [largest] * whole + [min(size for size in buckets if size >= rest)] * (rest > 0)
        return sum(_ALONE + (frames + _AROUND) * size for size in sizes)

    groups: list[tuple[int, list[int]]] = []
    for frames in ascending:
        placed = {at for _, part in groups for at in part}
        fitting = [at for at, count in enumerate(counts) if count <= frames and at not in placed]
        if not fitting:
            continue
        if groups:
            before = groups[-1]
            apart = cost(before[0], len(before[1])) + cost(frames, len(fitting))
            if apart >= cost(frames, len(before[1]) + len(fitting)):
                groups.pop()
                fitting = sorted(before[1] + fitting)
        groups.append((frames, fitting))
    return [(frames, part[at : at + largest]) for frames, part in groups for at in range(0, len(part), largest)]
