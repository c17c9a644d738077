"""Which columns of each layer a range of samples depends on.

Walking from the samples back to mel and source determines, for every layer, the columns to compute.
Rendering then computes no column in vain, and the walk for an endless sentence is the receptive
field.
"""

from dataclasses import dataclass
from functools import lru_cache, reduce

from cosyserve.spec import SAMPLES_PER_MEL_FRAME
from services.token2wav.vocoder.weights import EDGE_KERNEL, VocoderConfig


@dataclass(frozen=True)
class Span:
    """Columns start, start + 1, ... stop - 1 of a layer."""

    start: int
    stop: int

    def widened(self, columns: int) -> "Span":
        return Span(self.start - columns, self.stop + columns)

    def within(self, length: int) -> "Span":
        return Span(max(0, self.start), min(length, self.stop))

    def union(self, other: "Span") -> "Span":
        return Span(min(self.start, other.start), max(self.stop, other.stop))


@dataclass(frozen=True)
class LevelPlan:
    """One upsampling level: `inputs` -> transposed convolution -> `raised`; `spectrum` -> strided
    convolution -> `excitation` -> source block -> sum on `merged` -> residual blocks -> `out`.
    `length` is the level's full length.
    """

    inputs: Span
    raised: Span
    spectrum: Span
    excitation: Span
    merged: Span
    out: Span
    length: int


@dataclass(frozen=True)
class Plan:
    """Spans for the samples of frames first..last-1 out of `frames`."""

    mel: Span
    source: Span
    spectrum: Span
    levels: tuple[LevelPlan, ...]
    post: Span
    frames: int


def residual_reach(kernel: int, dilations: tuple[int, ...]) -> int:
    """Columns of context of a residual block on each side: each dilated convolution is followed by
    a plain one.
    """
    return (kernel // 2) * sum(dilation + 1 for dilation in dilations)


@lru_cache(maxsize=1024)
def plan(config: VocoderConfig, first: int, last: int, frames: int) -> Plan:
    """The walk back from the samples of frames first..last-1 of a sentence of `frames`; 0 <= first
    < last <= frames.

    Beyond the ends of the sentence convolutions see zeros, and the transform sees the mirror image.
    """
    per_frame = SAMPLES_PER_MEL_FRAME // config.hop_len
    overlap = config.n_fft // config.hop_len
    post = Span(per_frame * first - overlap // 2 + 1, per_frame * last + overlap // 2).within(per_frame * frames + 1)
    out, levels = post.widened(EDGE_KERNEL // 2), []
    for level in reversed(range(config.levels)):
        levels.append(_level(config, level, out, frames))
        out = levels[-1].inputs
    spectrum = reduce(Span.union, (level.spectrum for level in levels))
    half = config.n_fft // 2
    source = Span(spectrum.start * config.hop_len - half, (spectrum.stop - 1) * config.hop_len + half)
    return Plan(
        mel=out.widened(EDGE_KERNEL // 2).within(frames),
        source=source.within(SAMPLES_PER_MEL_FRAME * frames),
        spectrum=spectrum,
        levels=tuple(reversed(levels)),
        post=post,
        frames=frames,
    )


def _level(config: VocoderConfig, level: int, out: Span, frames: int) -> LevelPlan:
    rate, kernel = config.upsample_rates[level], config.upsample_kernel_sizes[level]
    trim, last = (kernel - rate) // 2, level == config.levels - 1
    stride = config.source_stride(level)
    slots = SAMPLES_PER_MEL_FRAME // config.hop_len * frames
    full = slots // stride
    length = full + 1 if last else full
    out = out.within(length)
    blocks = zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True)
    merged = out.widened(max(residual_reach(size, dilations) for size, dilations in blocks)).within(length)
    source_reach = residual_reach(
        config.source_resblock_kernel_sizes[level], config.source_resblock_dilation_sizes[level]
    )
    excitation = merged.widened(source_reach).within(length)
    begin = excitation.start * stride - stride // 2
    spectrum = Span(begin, begin + (excitation.stop - excitation.start - 1) * stride + config.source_kernel(level))
    # The last level is one column longer: column 0 mirrors column 2, and column j is column j - 1
    # of the transposed convolution.
    raised = Span(merged.start - 1, merged.stop - 1).within(full) if last else merged
    inputs = Span(-((kernel - 1 - trim - raised.start) // rate), (raised.stop - 1 + trim) // rate + 1)
    return LevelPlan(
        inputs=inputs.within(full // rate),
        raised=raised,
        spectrum=spectrum.within(slots + 1),
        excitation=excitation,
        merged=merged,
        out=out,
        length=length,
    )


@dataclass(frozen=True)
class Context:
    """What the samples of one frame depend on in addition to the frame itself, given the kernels,
    dilations and rates of the configuration.
    """

    mel_before: int
    mel_after: int
    """Mel frames, through the filter network alone."""
    source_before: int
    source_after: int
    """Samples of excitation."""

    @property
    def frames_before(self) -> int:
        """Mel frames that cover both."""
        return max(self.mel_before, -(-self.source_before // SAMPLES_PER_MEL_FRAME))

    def hold_back(self, f0_reach: int) -> int:
        """Mel frames after a frame, including the context of source and f0: a sample in the second
        half of a frame needs the next frame's f0.
        """
        last = SAMPLES_PER_MEL_FRAME + self.source_after - 1
        return max(self.mel_after, (last + SAMPLES_PER_MEL_FRAME // 2) // SAMPLES_PER_MEL_FRAME + f0_reach)


def context(config: VocoderConfig) -> Context:
    far = 1000
    walk = plan(config, far, far + 1, 2 * far)
    begin, end = SAMPLES_PER_MEL_FRAME * far, SAMPLES_PER_MEL_FRAME * (far + 1)
    return Context(far - walk.mel.start, walk.mel.stop - far - 1, begin - walk.source.start, walk.source.stop - end)
