"""The vocoder's parameters from `cosyvoice2.yaml`."""

import math
from dataclasses import dataclass

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import MEL_BINS, SAMPLE_RATE, SAMPLES_PER_MEL_FRAME
from services.token2wav.inputs.model_files import YamlSection

F0_LAYERS = 5
F0_KERNEL = 3
EDGE_KERNEL = 7
"""Kernel of the first and of the last convolution of the filter network."""
_FIXED = {
    "in_channels": MEL_BINS,
    "sampling_rate": SAMPLE_RATE,
    "f0_predictor.in_channels": MEL_BINS,
    "f0_predictor.num_class": 1,
}
"""Values that the arithmetic here assumes."""


@dataclass(frozen=True, kw_only=True)
class VocoderConfig:
    """Yaml section `hift` with its own key names (compatibility specification sections 1 and 5).

    All sizes of the filter network are free except the frame: 80 mel bins in, 480 samples of 24 kHz
    out.
    """

    base_channels: int
    nb_harmonics: int
    nsf_alpha: float
    nsf_sigma: float
    nsf_voiced_threshold: float
    upsample_rates: tuple[int, ...]
    upsample_kernel_sizes: tuple[int, ...]
    n_fft: int
    hop_len: int
    resblock_kernel_sizes: tuple[int, ...]
    resblock_dilation_sizes: tuple[tuple[int, ...], ...]
    source_resblock_kernel_sizes: tuple[int, ...]
    source_resblock_dilation_sizes: tuple[tuple[int, ...], ...]
    lrelu_slope: float
    audio_limit: float
    f0_channels: int

    @property
    def levels(self) -> int:
        return len(self.upsample_rates)

    @property
    def harmonics(self) -> int:
        """Sine waves of the source: the fundamental and its overtones."""
        return self.nb_harmonics + 1

    @property
    def bins(self) -> int:
        """Frequencies of the short-time spectrum."""
        return self.n_fft // 2 + 1

    def channels(self, level: int) -> int:
        """Channels after `level` upsamplings."""
        return self.base_channels >> level

    def source_stride(self, level: int) -> int:
        """Spectrum frames per frame of a level."""
        return math.prod(self.upsample_rates[level + 1 :])

    def source_kernel(self, level: int) -> int:
        stride = self.source_stride(level)
        return 1 if stride == 1 else 2 * stride


def read_config(directory: ModelDirectory) -> VocoderConfig:
    """Raises ModelError naming the yaml key that is missing, has the wrong type or a value that is
    not implemented.
    """
    hift = YamlSection(directory, "hift")
    hift.require(_FIXED)
    config = VocoderConfig(
        base_channels=hift.size("base_channels"),
        nb_harmonics=hift.size("nb_harmonics"),
        nsf_alpha=hift.number("nsf_alpha"),
        nsf_sigma=hift.number("nsf_sigma"),
        nsf_voiced_threshold=hift.number("nsf_voiced_threshold"),
        upsample_rates=hift.sizes("upsample_rates"),
        upsample_kernel_sizes=hift.sizes("upsample_kernel_sizes"),
        n_fft=hift.size("istft_params.n_fft"),
        hop_len=hift.size("istft_params.hop_len"),
        resblock_kernel_sizes=hift.sizes("resblock_kernel_sizes"),
        resblock_dilation_sizes=hift.size_lists("resblock_dilation_sizes"),
        source_resblock_kernel_sizes=hift.sizes("source_resblock_kernel_sizes"),
        source_resblock_dilation_sizes=hift.size_lists("source_resblock_dilation_sizes"),
        lrelu_slope=hift.number("lrelu_slope"),
        audio_limit=hift.number("audio_limit"),
        f0_channels=hift.size("f0_predictor.cond_channels"),
    )
    if problems := _inconsistencies(config):
        raise ModelError(f"{directory.path}: yaml section hift: {'; '.join(problems)}")
    return config


def _inconsistencies(config: VocoderConfig) -> list[str]:
    problems = []
    if math.prod(config.upsample_rates) * config.hop_len != SAMPLES_PER_MEL_FRAME:
        problems.append(f"upsample_rates times hop_len must make {SAMPLES_PER_MEL_FRAME} samples a mel frame")
    if config.n_fft % (2 * config.hop_len):
        problems.append("n_fft must be an even multiple of hop_len")
    if config.base_channels % (1 << config.levels):
        problems.append(f"base_channels must be divisible by {1 << config.levels}")
    if len(config.upsample_kernel_sizes) != config.levels or len(config.source_resblock_kernel_sizes) != config.levels:
        problems.append("upsample_kernel_sizes and source_resblock_kernel_sizes must have one entry per upsample rate")
    elif any((k - r) % 2 or k < r for k, r in zip(config.upsample_kernel_sizes, config.upsample_rates, strict=True)):
        problems.append("each upsample kernel must exceed its rate by an even number")
    for kind in ("", "source_"):
        kernels, dilations = (
            getattr(config, f"{kind}resblock_kernel_sizes"),
            getattr(config, f"{kind}resblock_dilation_sizes"),
        )
        if len(kernels) != len(dilations) or not kernels:
            problems.append(f"{kind}resblock_dilation_sizes must have one list per {kind}resblock kernel")
        if any(kernel % 2 == 0 for kernel in kernels):
            problems.append(f"{kind}resblock_kernel_sizes must be odd")
    return problems
