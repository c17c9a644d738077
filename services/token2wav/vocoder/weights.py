"""`hift.pt` and its section of the yaml: sizes, names, shapes, and the fusion of weight norm.

Three naming schemes are supported: `<m>.parametrizations.weight.original0/1` (what current torch
writes), `<m>.weight_g` / `<m>.weight_v` (older snapshots), and an already fused `<m>.weight`; each
with or without the `generator.` prefix of the GAN wrapper. Source: compatibility specification
section 5.5.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.generations.separate_decoder import decoder_of, require_own_weights, token2wav_networks
from cosyserve.model_directory import ModelDirectory, check_tensors
from cosyserve.spec import MEL_BINS, SAMPLE_RATE, SAMPLES_PER_MEL_FRAME
from services.token2wav.inputs.model_files import YamlSection, read_tensors
from services.token2wav.vocoder.default_sizes import sizes_of_tensors

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

    @property
    def pre_kernel(self) -> int:
        """Kernel of the first convolution."""
        return EDGE_KERNEL

    def f0_kernel(self, layer: int) -> int:
        """Kernel of a convolution of the f0 predictor."""
        return F0_KERNEL

    def raising_shape(self, level: int) -> "Shape":
        """Weight of the convolution that upsamples to the columns of a level: of a transposed one,
        inputs come first.
        """
        return self.channels(level), self.channels(level + 1), self.upsample_kernel_sizes[level]

    def kernel_problem(self) -> str:
        """What is wrong with the upsampling kernels, if anything is."""
        pairs = zip(self.upsample_kernel_sizes, self.upsample_rates, strict=True)
        wrong = any((kernel - rate) % 2 or kernel < rate for kernel, rate in pairs)
        return "each upsample kernel must exceed its rate by an even number" if wrong else ""


def read_config(directory: ModelDirectory) -> VocoderConfig:
    """Raises ModelError naming the yaml key that is missing, has the wrong type or a value that is
    not implemented. The yaml of a separate decoder says nothing of its vocoder, whose tensors are
    read then.
    """
    if decoder_of(directory) is None:
        sizes = sizes_in_yaml(directory, "hift")
    else:
        path = directory.file(FILE)
        sizes = sizes_of_tensors(path, _canonical(path, read_tensors(path)))
    config = VocoderConfig(**sizes)
    check_sizes(directory, config)
    return config


def sizes_in_yaml(directory: ModelDirectory, network: str) -> dict[str, Any]:
    """The fields of VocoderConfig, which every vocoder network has. Raises ModelError as
    `read_config` does, and for a directory whose vocoder is another network.
    """
    if (found := token2wav_networks(directory).vocoder_network) != network:
        raise ModelError(f"{directory.path}: its vocoder is the network {found}; this runs {network}")
    hift = YamlSection(directory, "hift")
    hift.require(_FIXED)
    return {
        "base_channels": hift.size("base_channels"),
        "nb_harmonics": hift.size("nb_harmonics"),
        "nsf_alpha": hift.number("nsf_alpha"),
        "nsf_sigma": hift.number("nsf_sigma"),
        "nsf_voiced_threshold": hift.number("nsf_voiced_threshold"),
        "upsample_rates": hift.sizes("upsample_rates"),
        "upsample_kernel_sizes": hift.sizes("upsample_kernel_sizes"),
        "n_fft": hift.size("istft_params.n_fft"),
        "hop_len": hift.size("istft_params.hop_len"),
        "resblock_kernel_sizes": hift.sizes("resblock_kernel_sizes"),
        "resblock_dilation_sizes": hift.size_lists("resblock_dilation_sizes"),
        "source_resblock_kernel_sizes": hift.sizes("source_resblock_kernel_sizes"),
        "source_resblock_dilation_sizes": hift.size_lists("source_resblock_dilation_sizes"),
        "lrelu_slope": hift.number("lrelu_slope"),
        "audio_limit": hift.number("audio_limit"),
        "f0_channels": hift.size("f0_predictor.cond_channels"),
    }


def check_sizes(directory: ModelDirectory, config: VocoderConfig) -> None:
    """Raise ModelError for sizes that do not fit together."""
    if problems := _inconsistencies(config):
        raise ModelError(f"{directory.path}: yaml section hift: {'; '.join(problems)}")


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
    elif problem := config.kernel_problem():
        problems.append(problem)
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


FILE = "hift.pt"
_GAIN, _DIRECTION = ".parametrizations.weight.original0", ".parametrizations.weight.original1"
_LEGACY = {".weight_g": _GAIN, ".weight_v": _DIRECTION}
Shape = tuple[int, ...]


def expected_tensors(config: VocoderConfig) -> dict[str, Shape]:
    """Name and shape of every tensor, in the current naming scheme (328 for the published
    sizes).
    """
    shapes: dict[str, Shape] = {"m_source.l_linear.weight": (1, config.harmonics), "m_source.l_linear.bias": (1,)}
    for level in range(config.levels):
        width = config.channels(level + 1)
        shapes[f"source_downs.{level}.weight"] = (width, 2 * config.bins, config.source_kernel(level))
        shapes[f"source_downs.{level}.bias"] = (width,)
    for block, width, _, dilations in residual_blocks(config):
        for activations in ("activations1", "activations2"):
            shapes |= {f"{block}.{activations}.{i}.alpha": (width,) for i in range(len(dilations))}
    shapes |= {"f0_predictor.classifier.weight": (1, config.f0_channels), "f0_predictor.classifier.bias": (1,)}
    for module, (shape, bias) in _normed_modules(config).items():
        shapes |= {f"{module}{_GAIN}": (shape[0], 1, 1), f"{module}{_DIRECTION}": shape, f"{module}.bias": (bias,)}
    return shapes


def residual_blocks(config: VocoderConfig) -> Iterator[tuple[str, int, int, tuple[int, ...]]]:
    """(name, channels, kernel, dilations) of each residual block, source blocks first."""
    for level in range(config.levels):
        kernel, dilations = config.source_resblock_kernel_sizes[level], config.source_resblock_dilation_sizes[level]
        yield f"source_resblocks.{level}", config.channels(level + 1), kernel, dilations
    variants = list(zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True))
    for level in range(config.levels):
        for variant, (kernel, dilations) in enumerate(variants):
            yield f"resblocks.{len(variants) * level + variant}", config.channels(level + 1), kernel, dilations


def _normed_modules(config: VocoderConfig) -> dict[str, tuple[Shape, int]]:
    """Weight shape and bias width of every module with weight norm."""
    base = config.base_channels
    modules: dict[str, tuple[Shape, int]] = {"conv_pre": ((base, MEL_BINS, config.pre_kernel), base)}
    for level in range(config.levels):
        modules[f"ups.{level}"] = (config.raising_shape(level), config.channels(level + 1))
    for block, width, kernel, dilations in residual_blocks(config):
        for i in range(len(dilations)):
            modules |= {f"{block}.{convs}.{i}": ((width, width, kernel), width) for convs in ("convs1", "convs2")}
    modules["conv_post"] = ((2 * config.bins, config.channels(config.levels), EDGE_KERNEL), 2 * config.bins)
    for layer in range(F0_LAYERS):
        inputs = config.f0_channels if layer else MEL_BINS
        shape = config.f0_channels, inputs, config.f0_kernel(layer)
        modules[f"f0_predictor.condnet.{2 * layer}"] = (shape, config.f0_channels)
    return modules


def load_weights(directory: ModelDirectory, config: VocoderConfig, doubled: str | None = None) -> dict[str, Tensor]:
    """Every tensor in float32 on the CPU with weight norm fused: `<module>.weight` replaces gain
    and direction. doubled: names that begin so are fused and returned in float64.

    Raises ModelError naming the file and each tensor that is missing, extra, has the wrong shape,
    is not floating point or is not finite.
    """
    path = directory.file(FILE)
    tensors = _canonical(path, read_tensors(path))
    require_own_weights(directory, path, tensors)
    expected = expected_tensors(config)
    for module, (shape, _) in _normed_modules(config).items():
        if f"{module}.weight" in tensors:
            del expected[f"{module}{_GAIN}"], expected[f"{module}{_DIRECTION}"]
            expected[f"{module}.weight"] = shape
    check_tensors(path, tensors, expected)
    weights = fused({
        name: tensor.to(torch.float64 if doubled and name.startswith(doubled) else torch.float32)
        for name, tensor in tensors.items()
    })  # fmt: skip
    for name, tensor in weights.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"{path}: tensor {name} holds values that are not finite")
    return weights


def is_gain(name: str) -> bool:
    """Whether a tensor holds the norms of a weight whose directions are stored in a second
    tensor.
    """
    return name.endswith(_GAIN)


def fused(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors with `<module>.weight` in place of each pair of gain and direction;
    differentiable.
    """
    weights = dict(tensors)
    for name in tensors:
        if is_gain(name):
            module = name.removesuffix(_GAIN)
            gain, direction = weights.pop(name), weights.pop(f"{module}{_DIRECTION}")
            weights[f"{module}.weight"] = (
                gain * direction / torch.linalg.vector_norm(direction, dim=(1, 2), keepdim=True)
            )
    return weights


def _canonical(path: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        new = name.replace("generator.", "")
        for old_suffix, suffix in _LEGACY.items():
            if new.endswith(old_suffix):
                new = new.removesuffix(old_suffix) + suffix
        if new in renamed:
            raise ModelError(f"{path}: tensor {new} appears twice, the second time as {name}")
        renamed[new] = tensor
    return renamed
