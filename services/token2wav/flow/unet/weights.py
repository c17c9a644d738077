"""The sizes of CosyVoice2's flow in the yaml, and the tensors of its `flow.pt` (compatibility
specification of CosyVoice2, sections 1 and 4.7).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import CHUNK_TOKENS, EULER_STEPS, LOOKAHEAD_TOKENS, MEL_BINS, MEL_FRAMES_PER_TOKEN
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
from services.token2wav.flow.unet.encoder import UPSAMPLED_LAYERS
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
class UnetConfig:
    """Layer sizes. encoder_*: conformer; estimator_*: U-Net, whose attention is heads * head_width
    wide.
    """

    vocabulary: int
    speaker: int
    input_width: int
    encoder_width: int
    encoder_heads: int
    encoder_feed_forward: int
    encoder_layers: int
    channels: int
    estimator_heads: int
    head_width: int
    transformers: int
    middle: int
    guidance: float
    temperature: float = 1.0
    """Standard deviation of the noise that a sentence starts from."""

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
        config = cls(
            vocabulary=flow.size("vocab_size"),
            speaker=flow.size("spk_embed_dim"),
            input_width=flow.size("input_size"),
            encoder_width=flow.size("encoder.output_size"),
            encoder_heads=flow.size("encoder.attention_heads"),
            encoder_feed_forward=flow.size("encoder.linear_units"),
            encoder_layers=flow.size("encoder.num_blocks"),
            channels=channels[0],
            estimator_heads=flow.size("decoder.estimator.num_heads"),
            head_width=flow.size("decoder.estimator.attention_head_dim"),
            transformers=flow.size("decoder.estimator.n_blocks"),
            middle=flow.size("decoder.estimator.num_mid_blocks"),
            guidance=guidance,
            temperature=temperature,
        )
        if config.encoder_width % (2 * config.encoder_heads):
            raise ModelError(
                f"{directory.path}: flow.encoder.output_size {config.encoder_width} is no even multiple of "
                f"flow.encoder.attention_heads {config.encoder_heads}"
            )
        return config

    @property
    def position_width(self) -> int:
        """Of the conformer's position tables."""
        return self.encoder_width

    def state_bytes_per_frame(self, estimator_dtype: torch.dtype = torch.float32) -> int:
        """Bytes by which a stream's keys and values grow with each mel frame. The encoder's are
        float32, one row, and half of them are per token.
        """
        inner = self.estimator_heads * self.head_width
        estimator = EULER_STEPS * ROWS * (self.middle + 2) * self.transformers * inner * estimator_dtype.itemsize
        encoder = (
            (self.encoder_layers / MEL_FRAMES_PER_TOKEN + UPSAMPLED_LAYERS)
            * self.encoder_width
            * torch.float32.itemsize
        )
        return int(2 * (estimator + encoder))


def expected_tensors(config: UnetConfig) -> Shapes:
    """Name and shape of every tensor in `flow.pt`."""
    width = config.encoder_width
    shapes: Shapes = {"input_embedding.weight": (config.vocabulary, config.input_width)}
    shapes |= linear_shapes("spk_embed_affine_layer", MEL_BINS, config.speaker) | linear_shapes(
        "encoder_proj", MEL_BINS, width
    )
    for name, inner in (("embed", config.input_width), ("up_embed", width)):
        shapes |= linear_shapes(f"encoder.{name}.out.0", width, inner) | norm_shapes(f"encoder.{name}.out.1", width)
    shapes |= convolution_shapes("encoder.pre_lookahead_layer.conv1", width, width, LOOKAHEAD_TOKENS + 1)
    shapes |= convolution_shapes("encoder.pre_lookahead_layer.conv2", width, width, 3)
    shapes |= convolution_shapes("encoder.up_layer.conv", width, width, 2 * MEL_FRAMES_PER_TOKEN + 1) | norm_shapes(
        "encoder.after_norm", width
    )
    for stack, layers in (("encoders", config.encoder_layers), ("up_encoders", UPSAMPLED_LAYERS)):
        for layer in range(layers):
            shapes |= _conformer(f"encoder.{stack}.{layer}", config)
    shapes |= {ESTIMATOR + name: shape for name, shape in _estimator(config)}
    return shapes


def _conformer(prefix: str, config: UnetConfig) -> Shapes:
    width, inner = config.encoder_width, config.encoder_feed_forward
    shapes: Shapes = {
        f"{prefix}.self_attn.pos_bias_{name}": (config.encoder_heads, width // config.encoder_heads) for name in "uv"
    }
    shapes |= {f"{prefix}.self_attn.linear_pos.weight": (width, width)}
    for name in ("q", "k", "v", "out"):
        shapes |= linear_shapes(f"{prefix}.self_attn.linear_{name}", width, width)
    shapes |= linear_shapes(f"{prefix}.feed_forward.w_1", inner, width) | linear_shapes(
        f"{prefix}.feed_forward.w_2", width, inner
    )
    return shapes | norm_shapes(f"{prefix}.norm_ff", width) | norm_shapes(f"{prefix}.norm_mha", width)


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
