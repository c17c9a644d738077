"""`flow.pt` and its section of the yaml: sizes, names, shapes (compatibility specification sections
1 and 4.7), and the tensors, read without executing code and checked one by one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory, check_tensors
from cosyserve.spec import (
    CHUNK_FRAMES,
    CHUNK_TOKENS,
    EULER_STEPS,
    LOOKAHEAD_TOKENS,
    MEL_BINS,
    MEL_FRAMES_PER_TOKEN,
    SPEAKER_DIMENSION,
    SPEECH_VOCABULARY,
)
from services.token2wav.flow.solver import ROWS
from services.token2wav.flow.unet.encoder import UPSAMPLED_LAYERS
from services.token2wav.inputs.model_files import YamlSection, read_tensors

FILE = "flow.pt"
ESTIMATOR = "decoder.estimator."

_FIXED = {
    "vocab_size": SPEECH_VOCABULARY,
    "spk_embed_dim": SPEAKER_DIMENSION,
    "output_size": MEL_BINS,
    "token_mel_ratio": MEL_FRAMES_PER_TOKEN,
    "pre_lookahead_len": LOOKAHEAD_TOKENS,
    "encoder.normalize_before": True,
    "encoder.input_layer": "linear",
    "encoder.pos_enc_layer_type": "rel_pos_espnet",
    "encoder.selfattention_layer_type": "rel_selfattn",
    "encoder.use_cnn_module": False,
    "encoder.macaron_style": False,
    "encoder.static_chunk_size": CHUNK_TOKENS,
    "decoder.spk_emb_dim": MEL_BINS,
    "decoder.cfm_params.content.solver": "euler",
    "decoder.cfm_params.content.t_scheduler": "cosine",
    "decoder.estimator.in_channels": 4 * MEL_BINS,
    "decoder.estimator.out_channels": MEL_BINS,
    "decoder.estimator.act_fn": "gelu",
    "decoder.estimator.static_chunk_size": CHUNK_FRAMES,
    "decoder.estimator.num_decoding_left_chunks": -1,
}
"""Values that the arithmetic here assumes; another value in the yaml means a different model."""


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
        # The reference's inference argument of that name; the published yaml has no such key.
        has_temperature = "temperature" in directory.section("flow", "decoder")
        temperature = flow.number("decoder.temperature") if has_temperature else 1.0
        if not 0 <= temperature <= 1:
            raise flow.wrong("decoder.temperature", temperature, ", expected a number from 0 to 1")
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
            guidance=float(flow.number("decoder.cfm_params.content.inference_cfg_rate")),
            temperature=float(temperature),
        )
        if config.encoder_width % (2 * config.encoder_heads):
            raise ModelError(
                f"{directory.path}: flow.encoder.output_size {config.encoder_width} is no even multiple of "
                f"flow.encoder.attention_heads {config.encoder_heads}"
            )
        return config

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


def expected_tensors(config: UnetConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor in `flow.pt`."""
    width = config.encoder_width
    shapes: dict[str, tuple[int, ...]] = {"input_embedding.weight": (config.vocabulary, config.input_width)}
    shapes |= _linear("spk_embed_affine_layer", MEL_BINS, config.speaker) | _linear("encoder_proj", MEL_BINS, width)
    for name, inner in (("embed", config.input_width), ("up_embed", width)):
        shapes |= _linear(f"encoder.{name}.out.0", width, inner) | _norm(f"encoder.{name}.out.1", width)
    shapes |= _convolution("encoder.pre_lookahead_layer.conv1", width, width, LOOKAHEAD_TOKENS + 1)
    shapes |= _convolution("encoder.pre_lookahead_layer.conv2", width, width, 3)
    shapes |= _convolution("encoder.up_layer.conv", width, width, 2 * MEL_FRAMES_PER_TOKEN + 1) | _norm(
        "encoder.after_norm", width
    )
    for stack, layers in (("encoders", config.encoder_layers), ("up_encoders", UPSAMPLED_LAYERS)):
        for layer in range(layers):
            shapes |= _conformer(f"encoder.{stack}.{layer}", config)
    shapes |= {ESTIMATOR + name: shape for name, shape in _estimator(config)}
    return shapes


def _conformer(prefix: str, config: UnetConfig) -> dict[str, tuple[int, ...]]:
    width, inner = config.encoder_width, config.encoder_feed_forward
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}.self_attn.pos_bias_{name}": (config.encoder_heads, width // config.encoder_heads) for name in "uv"
    }
    shapes |= {f"{prefix}.self_attn.linear_pos.weight": (width, width)}
    for name in ("q", "k", "v", "out"):
        shapes |= _linear(f"{prefix}.self_attn.linear_{name}", width, width)
    shapes |= _linear(f"{prefix}.feed_forward.w_1", inner, width) | _linear(f"{prefix}.feed_forward.w_2", width, inner)
    return shapes | _norm(f"{prefix}.norm_ff", width) | _norm(f"{prefix}.norm_mha", width)


def _estimator(config: UnetConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    channels, time = config.channels, 4 * config.channels
    yield from _linear("time_mlp.linear_1", time, 4 * MEL_BINS).items()
    yield from _linear("time_mlp.linear_2", time, time).items()
    levels = (
        {"down_blocks.0": 4 * MEL_BINS}
        | {f"mid_blocks.{at}": channels for at in range(config.middle)}
        | {"up_blocks.0": 2 * channels}
    )
    for level, into in levels.items():
        yield from _linear(f"{level}.0.mlp.1", channels, time).items()
        for block, width in (("block1", into), ("block2", channels)):
            yield from _convolution(f"{level}.0.{block}.block.0", channels, width, 3).items()
            yield from _norm(f"{level}.0.{block}.block.2", channels).items()
        yield from _convolution(f"{level}.0.res_conv", channels, into, 1).items()
        for at in range(config.transformers):
            yield from _transformer(f"{level}.1.{at}", config).items()
    for name in ("down_blocks.0.2", "up_blocks.0.2", "final_block.block.0"):
        yield from _convolution(name, channels, channels, 3).items()
    yield from _norm("final_block.block.2", channels).items()
    yield from _convolution("final_proj", MEL_BINS, channels, 1).items()


def _transformer(prefix: str, config: UnetConfig) -> dict[str, tuple[int, ...]]:
    channels, inner = config.channels, config.estimator_heads * config.head_width
    shapes: dict[str, tuple[int, ...]] = {f"{prefix}.attn1.to_{name}.weight": (inner, channels) for name in "qkv"}
    shapes |= _linear(f"{prefix}.attn1.to_out.0", channels, inner)
    shapes |= _linear(f"{prefix}.ff.net.0.proj", 4 * channels, channels) | _linear(
        f"{prefix}.ff.net.2", channels, 4 * channels
    )
    return shapes | _norm(f"{prefix}.norm1", channels) | _norm(f"{prefix}.norm3", channels)


def _linear(name: str, out: int, into: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def _norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _convolution(name: str, out: int, into: int, taps: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, into, taps), f"{name}.bias": (out,)}


def read_flow_tensors(
    directory: ModelDirectory, config: UnetConfig, device: torch.device, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The tensors on `device`: the estimator's in `dtype`, all others in float32; half-precision
    files are widened.

    The encoder stays float32 (a fortieth of the work): float16 cannot represent its layer-norm
    epsilon of 1e-12, and it scales activations by the square root of its width. Raises ModelError
    naming the file and the tensor.
    """
    path = directory.file(FILE)
    tensors = read_tensors(path)
    check_tensors(path, tensors, expected_tensors(config))
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"{path}: tensor {name} has values that are not finite")
    return {
        # Cloned, because a view into the file's storage may start at any address; a new
        # allocation is aligned.
        name: tensor.to(device, dtype if name.startswith(ESTIMATOR) else torch.float32).clone(
            memory_format=torch.contiguous_format
        )
        for name, tensor in tensors.items()
    }
