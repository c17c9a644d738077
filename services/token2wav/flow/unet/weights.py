"""The sizes of CosyVoice2's flow in the yaml, and the tensors of its `flow.pt` (compatibility
specification of CosyVoice2, sections 1 and 4.7).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import CHUNK_TOKENS, EULER_STEPS, MEL_BINS
from services.token2wav.flow.checkpoint import (
    COMMON_VALUES,
    ESTIMATOR,
    Shapes,
    convolution_shapes,
    guidance_and_temperature,
    linear_shapes,
    norm_shapes,
    read_checked,
)
from services.token2wav.flow.solver import ROWS
from services.token2wav.flow.unet.front import FrontConfig, front_sizes, front_tensors
from services.token2wav.inputs.model_files import YamlSection

_FIXED = COMMON_VALUES | {
    "encoder.normalize_before": True,
    "encoder.input_layer": "linear",
    "encoder.pos_enc_layer_type": "rel_pos_espnet",
    "encoder.selfattention_layer_type": "rel_selfattn",
    "encoder.use_cnn_module": False,
    "encoder.macaron_style": False,
    "encoder.static_chunk_size": CHUNK_TOKENS,
    "decoder.estimator.in_channels": 4 * MEL_BINS,
    "decoder.estimator.act_fn": "gelu",
}
"""Values that the arithmetic here assumes."""


@dataclass(frozen=True, kw_only=True)
class UnetConfig(FrontConfig):
    """Layer sizes of conformer and U-Net. estimator_*: of the U-Net, whose attention is heads *
    head_width wide.
    """

    channels: int
    estimator_heads: int
    head_width: int
    transformers: int
    middle: int

    @classmethod
    def read(cls, directory: ModelDirectory) -> "UnetConfig":
        """Read from the yaml. ModelError names a key that is missing or has a value that is not
        implemented.
        """
        flow = YamlSection(directory, "flow")
        flow.require(_FIXED)
        channels = flow.sizes("decoder.estimator.channels")
        if len(channels) != 1:
            raise flow.wrong("decoder.estimator.channels", list(channels), "; only one level is implemented")
        guidance, temperature = guidance_and_temperature(directory, flow)
        return cls(
            **front_sizes(directory, flow),
            channels=channels[0],
            estimator_heads=flow.size("decoder.estimator.num_heads"),
            head_width=flow.size("decoder.estimator.attention_head_dim"),
            transformers=flow.size("decoder.estimator.n_blocks"),
            middle=flow.size("decoder.estimator.num_mid_blocks"),
            guidance=guidance,
            temperature=temperature,
        )

    def state_bytes_per_frame(self, estimator_dtype: torch.dtype = torch.float32) -> int:
        """Bytes by which a stream's keys and values grow with each mel frame."""
        inner = self.estimator_heads * self.head_width
        estimator = EULER_STEPS * ROWS * (self.middle + 2) * self.transformers * 2 * inner * estimator_dtype.itemsize
        return int(estimator + self.encoder_bytes_per_frame)


def expected_tensors(config: UnetConfig) -> Shapes:
    """Name and shape of every tensor in `flow.pt`."""
    return front_tensors(config) | {ESTIMATOR + name: shape for name, shape in _estimator(config)}


def _estimator(config: UnetConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    channels, time = config.channels, 4 * config.channels
    yield from linear_shapes("time_mlp.linear_1", time, 4 * MEL_BINS).items()
    yield from linear_shapes("time_mlp.linear_2", time, time).items()
    levels = (
        {"down_blocks.0": 4 * MEL_BINS}
        | {f"mid_blocks.{at}": channels for at in range(config.middle)}
        | {"up_blocks.0": 2 * channels}
    )
    for level, into in levels.items():
        yield from linear_shapes(f"{level}.0.mlp.1", channels, time).items()
        for block, width in (("block1", into), ("block2", channels)):
            yield from convolution_shapes(f"{level}.0.{block}.block.0", channels, width, 3).items()
            yield from norm_shapes(f"{level}.0.{block}.block.2", channels).items()
        yield from convolution_shapes(f"{level}.0.res_conv", channels, into, 1).items()
        for at in range(config.transformers):
            yield from _transformer(f"{level}.1.{at}", config).items()
    for name in ("down_blocks.0.2", "up_blocks.0.2", "final_block.block.0"):
        yield from convolution_shapes(name, channels, channels, 3).items()
    yield from norm_shapes("final_block.block.2", channels).items()
    yield from convolution_shapes("final_proj", MEL_BINS, channels, 1).items()


def _transformer(prefix: str, config: UnetConfig) -> Shapes:
    channels, inner = config.channels, config.estimator_heads * config.head_width
    shapes: Shapes = {f"{prefix}.attn1.to_{name}.weight": (inner, channels) for name in "qkv"}
    shapes |= linear_shapes(f"{prefix}.attn1.to_out.0", channels, inner)
    shapes |= linear_shapes(f"{prefix}.ff.net.0.proj", 4 * channels, channels) | linear_shapes(
        f"{prefix}.ff.net.2", channels, 4 * channels
    )
    return shapes | norm_shapes(f"{prefix}.norm1", channels) | norm_shapes(f"{prefix}.norm3", channels)


def read_flow_tensors(
    directory: ModelDirectory, config: UnetConfig, device: torch.device, dtype: torch.dtype
) -> dict[str, Tensor]:
    """See `read_checked`.

    The encoder stays float32 (a fortieth of the work): float16 cannot represent its layer-norm
    epsilon of 1e-12, and it scales activations by the square root of its width.
    """
    return read_checked(directory, expected_tensors(config), device, dtype)
