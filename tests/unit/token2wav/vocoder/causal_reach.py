"""How far one frame of mel, and one sample of the source, reach into the samples.

The walk forward from an input through every layer gives the samples that it can change. What lies
before them is determined without it: that is the hold-back. How long after it they go on is the
context that windows without carried columns would compute again.
"""

from cosyserve.spec import SAMPLES_PER_MEL_FRAME
from services.token2wav.vocoder.causal.weights import PITCH_LOOKAHEAD, CausalVocoderConfig
from services.token2wav.vocoder.receptive_field import Span
from services.token2wav.vocoder.weights import EDGE_KERNEL, F0_LAYERS


def determined_lag(config: CausalVocoderConfig) -> int:
    """Samples that are not determined yet of those of all frames that have arrived."""
    return -min(samples_of_mel(config).start, samples_of_source(config, pitch_samples(config)).start)


def samples_of_mel(config: CausalVocoderConfig) -> Span:
    """The samples that mel frame 0 changes through the filter network."""
    columns = Span(-config.conv_pre_look_right, 1)
    for level in range(config.levels):
        columns = _blocks(config, _raised(config, level, columns))
    return _synthesised(config, columns)


def samples_of_source(config: CausalVocoderConfig, source: Span) -> Span:
    """The samples that these samples of the source change."""
    half, hop = config.n_fft // 2, config.hop_len
    # The window's first value is 0, so a column sees n_fft - 1 samples.
    spectrum = Span(-(-(source.start - half + 1) // hop), (source.stop + half - 2) // hop + 1)
    columns = _excited(config, 0, spectrum)
    for level in range(1, config.levels):
        columns = _raised(config, level, _blocks(config, columns)).union(_excited(config, level, spectrum))
    return _synthesised(config, _blocks(config, columns))


def pitch_samples(config: CausalVocoderConfig) -> Span:
    """The samples of the source whose f0 mel frame 0 changes; by the sum of phase also all after
    them.
    """
    after = sum(config.f0_kernel(layer) - 1 for layer in range(1, F0_LAYERS))
    return Span(-PITCH_LOOKAHEAD * SAMPLES_PER_MEL_FRAME, (after + 1) * SAMPLES_PER_MEL_FRAME)


def _excited(config: CausalVocoderConfig, level: int, spectrum: Span) -> Span:
    """The columns that the source block of a level adds where they see these of the spectrum;
    column j sees them from (j - 1) * stride + 1 on.
    """
    stride, kernel = config.source_stride(level), config.source_kernel(level)
    first, last = -((kernel - stride - spectrum.start) // stride), (spectrum.stop - 2 + stride) // stride
    reach = _residual(config.source_resblock_kernel_sizes[level], config.source_resblock_dilation_sizes[level])
    return Span(first, last + 1 + reach)


def _raised(config: CausalVocoderConfig, level: int, columns: Span) -> Span:
    """The last level has one column more at its beginning."""
    rate, kernel = config.upsample_rates[level], config.upsample_kernel_sizes[level]
    shift = 1 if level == config.levels - 1 else 0
    return Span(rate * columns.start + shift, rate * columns.stop + kernel - 1 + shift)


def _blocks(config: CausalVocoderConfig, columns: Span) -> Span:
    blocks = zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True)
    return Span(columns.start, columns.stop + max(_residual(kernel, dilations) for kernel, dilations in blocks))


def _residual(kernel: int, dilations: tuple[int, ...]) -> int:
    return (kernel - 1) * sum(dilation + 1 for dilation in dilations)


def _synthesised(config: CausalVocoderConfig, columns: Span) -> Span:
    half, hop = config.n_fft // 2, config.hop_len
    last = columns.stop - 1 + EDGE_KERNEL - 1
    return Span(columns.start * hop - half + 1, last * hop + half)
