"""`hift.pt`: names, shapes, and the fusion of weight norm.

Three naming schemes are supported: `<m>.parametrizations.weight.original0/1` (what current torch
writes), `<m>.weight_g` / `<m>.weight_v` (older snapshots), and an already fused `<m>.weight`; each
with or without the `generator.` prefix of the GAN wrapper. Source: compatibility specification
section 5.5.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory, check_tensors
from cosyserve.spec import MEL_BINS
from services.token2wav.inputs.model_files import read_tensors
from services.token2wav.vocoder.config import EDGE_KERNEL, F0_KERNEL, F0_LAYERS, VocoderConfig

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
    modules: dict[str, tuple[Shape, int]] = {"conv_pre": ((base, MEL_BINS, EDGE_KERNEL), base)}
    for level, kernel in enumerate(config.upsample_kernel_sizes):
        modules[f"ups.{level}"] = (
            (config.channels(level), config.channels(level + 1), kernel),
            config.channels(level + 1),
        )
    for block, width, kernel, dilations in residual_blocks(config):
        for i in range(len(dilations)):
            modules |= {f"{block}.{convs}.{i}": ((width, width, kernel), width) for convs in ("convs1", "convs2")}
    modules["conv_post"] = ((2 * config.bins, config.channels(config.levels), EDGE_KERNEL), 2 * config.bins)
    for layer in range(F0_LAYERS):
        inputs = config.f0_channels if layer else MEL_BINS
        modules[f"f0_predictor.condnet.{2 * layer}"] = ((config.f0_channels, inputs, F0_KERNEL), config.f0_channels)
    return modules


def load_weights(directory: ModelDirectory, config: VocoderConfig) -> dict[str, Tensor]:
    """Every tensor in float32 on the CPU with weight norm fused: `<module>.weight` replaces gain
    and direction.

    Raises ModelError naming the file and each tensor that is missing, extra, has the wrong shape,
    is not floating point or is not finite.
    """
    path = directory.file(FILE)
    tensors = _canonical(path, read_tensors(path))
    expected = expected_tensors(config)
    for module, (shape, _) in _normed_modules(config).items():
        if f"{module}.weight" in tensors:
            del expected[f"{module}{_GAIN}"], expected[f"{module}{_DIRECTION}"]
            expected[f"{module}.weight"] = shape
    check_tensors(path, tensors, expected)
    weights = fused({name: tensor.to(torch.float32) for name, tensor in tensors.items()})
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
