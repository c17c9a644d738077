"""The ranges of every layer that a window needs, relative to its first frame, by network."""

import math
from dataclasses import dataclass

from cosyserve.spec import SAMPLES_PER_MEL_FRAME
from services.token2wav.vocoder.causal.weights import PITCH_LOOKAHEAD, CausalVocoderConfig
from services.token2wav.vocoder.receptive_field import Span, context, plan
from services.token2wav.vocoder.source import F0Predictor
from services.token2wav.vocoder.weights import EDGE_KERNEL, F0_LAYERS, VocoderConfig

_FAR = 1000
"""A frame far from both ends, so that no span is cut."""


def count(span: Span) -> int:
    """Number of columns."""
    return span.stop - span.start


@dataclass(frozen=True)
class LevelShape:
    """groups: positions of the upsampling, `rate` columns each. raised: column of the first of them
    in `merged`'s layer. excitation: columns that the source adds or needs for it. heard: the first
    column of the spectrum that the first of them depends on. merged: columns of the sum that the
    residual blocks get.
    """

    groups: Span
    raised: int
    excitation: Span
    heard: int
    merged: Span


@dataclass(frozen=True, kw_only=True)
class WindowShape:
    """For windows of `frames` frames. samples: what a window computes; those at its beginning that
    belong to the frame before it were not determined when that one was rendered.
    """

    frames: int
    samples: Span
    source: Span
    spectrum: Span
    inputs: Span
    """Columns of the first convolution."""
    levels: tuple[LevelShape, ...]
    post: Span
    pitched_before: int
    """Frames before the window whose pitch is used."""
    frames_before: int
    """Frames before the window whose mel is used."""
    hold_back: int
    """Frames after the window whose mel is used."""
    pitched_ahead: int
    """Of these, the last ones, whose own pitch is not known."""

    @property
    def mel_frames(self) -> int:
        """Frames whose mel is used."""
        return self.frames_before + self.frames + self.hold_back

    @property
    def unpitched(self) -> int:
        """Frames at the beginning whose pitch is not known."""
        return self.frames_before - self.pitched_before

    @property
    def pitched(self) -> int:
        """Frames whose pitch is known."""
        return self.mel_frames - self.unpitched - self.pitched_ahead


def hift_shape(config: VocoderConfig, frames: int) -> WindowShape:
    """Of HiFT, whose layers look to both sides: the spans of `receptive_field.plan`."""
    walk, reach, hop = plan(config, _FAR, _FAR + frames, 2 * _FAR), F0Predictor.reach, SAMPLES_PER_MEL_FRAME
    source, per_frame = _from(walk.source, _FAR * hop), hop // config.hop_len
    # The phase of a sample in the first half of a frame starts at the centre of the frame before.
    pitched_before = -((source.start - hop // 2) // hop) + 1
    spectrum, levels = _from(walk.spectrum, _FAR * per_frame), []
    for level, at in enumerate(walk.levels):
        rate, far = config.upsample_rates[level], _FAR * math.prod(config.upsample_rates[: level + 1])
        trim, late = (config.upsample_kernel_sizes[level] - rate) // 2, int(level == config.levels - 1)
        raised, excitation = _from(at.raised, far), _from(at.excitation, far)
        groups = Span((raised.start + trim) // rate, (raised.stop - 1 + trim) // rate + 1)
        stride = config.source_stride(level)
        levels.append(
            LevelShape(
                groups,
                groups.start * rate - trim + late,
                excitation,
                excitation.start * stride - stride // 2,
                _from(at.merged, far),
            )
        )
    return WindowShape(
        frames=frames,
        samples=Span(0, hop * frames),
        source=source,
        spectrum=spectrum,
        inputs=_from(walk.levels[0].inputs, _FAR),
        levels=tuple(levels),
        post=_from(walk.post, _FAR * per_frame),
        pitched_before=pitched_before,
        frames_before=pitched_before + reach,
        hold_back=context(config).hold_back(reach),
        pitched_ahead=reach,
    )


def causal_shape(config: CausalVocoderConfig, frames: int) -> WindowShape:
    """Of causal HiFT, whose layers look back: to the right the spans end where the frames that have
    arrived determine them, to the left they widen with every layer.
    """
    hop, half = SAMPLES_PER_MEL_FRAME, config.n_fft // 2
    # The first value of the transform's window is 0, so a column reaches half a transform and no
    # sample more to its left.
    late = half - config.hop_len - 1
    post = Span(-((half - 1 + late) // config.hop_len), hop // config.hop_len * frames + 1)
    out, levels, spectra = Span(post.start - EDGE_KERNEL + 1, post.stop), list[LevelShape](), list[Span]()
    for level in reversed(range(config.levels)):
        rate, shift, stride = config.upsample_rates[level], int(level == config.levels - 1), config.source_stride(level)
        blocks = zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True)
        merged = Span(out.start - max(_reach(kernel, dilations) for kernel, dilations in blocks), out.stop)
        reach = _reach(config.source_resblock_kernel_sizes[level], config.source_resblock_dilation_sizes[level])
        excitation = Span(merged.start - reach, merged.stop)
        heard = (excitation.start - 1) * stride + 1
        spectra.append(Span(heard, heard + (count(excitation) - 1) * stride + config.source_kernel(level)))
        # The last level is one column longer: column j is column j - 1 of the upsampling.
        groups = Span((merged.start - shift) // rate, (merged.stop - shift - 1) // rate + 1)
        levels.append(LevelShape(groups, groups.start * rate + shift, excitation, heard, merged))
        out = Span(groups.start - -(-(config.upsample_kernel_sizes[level] - 1) // rate), groups.stop)
    spectrum = Span(min(each.start for each in spectra), max(each.stop for each in spectra))
    source = Span(spectrum.start * config.hop_len - half, (spectrum.stop - 1) * config.hop_len + half)
    pitched_before, pitched_after = -(source.start // hop), -(-source.stop // hop) - frames
    unpitched = sum(config.f0_kernel(layer) - 1 for layer in range(1, F0_LAYERS))
    hold_back = max(config.conv_pre_look_right, pitched_after + PITCH_LOOKAHEAD)
    return WindowShape(
        frames=frames,
        samples=Span(-late, hop * frames),
        source=source,
        spectrum=spectrum,
        inputs=out,
        levels=tuple(reversed(levels)),
        post=post,
        pitched_before=pitched_before,
        frames_before=max(pitched_before + unpitched, -out.start),
        hold_back=hold_back,
        pitched_ahead=PITCH_LOOKAHEAD,
    )


def _reach(kernel: int, dilations: tuple[int, ...]) -> int:
    """Columns before a column that a residual block sees."""
    return (kernel - 1) * sum(dilation + 1 for dilation in dilations)


def _from(span: Span, origin: int) -> Span:
    return Span(span.start - origin, span.stop - origin)
