"""The sizes of Step-Audio2's flow in `flow.yaml`, and the tensors of its `flow.pt`.

Source: github.com/stepfun-ai/Step-Audio2, cosyvoice2/flow (`flow.py`, `decoder_dit.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import (
    EULER_STEPS,
    LOOKAHEAD_TOKENS,
    MEL_BINS,
    MEL_FRAMES_PER_TOKEN,
    SPEAKER_DIMENSION,
    SPEECH_VOCABULARY,
)
from services.token2wav.flow.checkpoint import (
    ESTIMATOR,
    Shapes,
    convolution_shapes,
    linear_shapes,
    norm_shapes,
    read_checked,
)
from services.token2wav.flow.solver import ROWS
from services.token2wav.flow.unet.front import FrontConfig, front_sizes, front_tensors
from services.token2wav.inputs.model_files import YamlSection

TIME_SINUSOIDS = 256
CONVOLUTION_TAPS = 3
BLOCK_MODULATIONS = 9
_FIXED = {
    "vocab_size": SPEECH_VOCABULARY,
    "spk_embed_dim": SPEAKER_DIMENSION,
    "output_size": MEL_BINS,
    "encoder.normalize_before": True,
    "encoder.input_layer": "linear",
    "encoder.pos_enc_layer_type": "rel_pos_espnet",
    "encoder.selfattention_layer_type": "rel_selfattn",
    "encoder.key_bias": True,
    "encoder.pre_lookahead_len": LOOKAHEAD_TOKENS,
    "encoder.up_stride": MEL_FRAMES_PER_TOKEN,
    "encoder.up_scale_factor": MEL_FRAMES_PER_TOKEN,
    "decoder.estimator.in_channels": 4 * MEL_BINS,
    "decoder.estimator.out_channels": MEL_BINS,
}
"""Values that the arithmetic here assumes."""


@dataclass(frozen=True, kw_only=True)
class StepDitConfig(FrontConfig):
    """Layer sizes of conformer and DiT. width: of the DiT, whose attention is heads * head_width
    wide.
    """

    width: int
    depth: int
    heads: int
    head_width: int
    feed_forward: int

    @classmethod
    def read(cls, directory: ModelDirectory) -> "StepDitConfig":
        """Read from the yaml. ModelError names a key that is missing or has a value that is not
        implemented.
        """
        flow = YamlSection(directory, "flow")
        flow.require(_FIXED)
        width, ratio = flow.size("decoder.estimator.hidden_size"), flow.number("decoder.estimator.mlp_ratio")
        if not 0 < ratio * width == int(ratio * width):
            raise flow.wrong("decoder.estimator.mlp_ratio", ratio, f"; {width} times it must be a positive integer")
        return cls(
            **front_sizes(directory, flow),
            encoder_upsampled_layers=flow.size("encoder.num_up_blocks"),
            guidance=float(flow.number("decoder.inference_cfg_rate")),
            width=width,
            depth=flow.size("decoder.estimator.depth"),
            heads=flow.size("decoder.estimator.num_heads"),
            head_width=flow.size("decoder.estimator.head_dim"),
            feed_forward=int(ratio * width),
        )

    def estimator_bytes_per_frame(self, dtype: torch.dtype = torch.float32) -> int:
        """Bytes of a frame's keys and values in all blocks and Euler steps."""
        return EULER_STEPS * ROWS * self.depth * 2 * self.heads * self.head_width * dtype.itemsize

    def state_bytes_per_frame(self, estimator_dtype: torch.dtype = torch.float32) -> int:
        """Bytes of keys and values for each mel frame that is kept."""
        return int(self.estimator_bytes_per_frame(estimator_dtype) + self.encoder_bytes_per_frame)


def expected_tensors(config: StepDitConfig) -> Shapes:
    """Name and shape of every tensor in `flow.pt`."""
    return front_tensors(config) | {ESTIMATOR + name: shape for name, shape in _estimator(config)}


def _estimator(config: StepDitConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    width = config.width
    yield from linear_shapes("t_embedder.mlp.0", width, TIME_SINUSOIDS).items()
    yield from linear_shapes("t_embedder.mlp.2", width, width).items()
    yield from linear_shapes("in_proj", width, 4 * MEL_BINS).items()
    for at in range(config.depth):
        yield from _block(f"blocks.{at}", config).items()
    yield from linear_shapes("final_layer.adaLN_modulation.1", 2 * width, width).items()
    yield from linear_shapes("final_layer.linear", MEL_BINS, width).items()


def _block(prefix: str, config: StepDitConfig) -> Shapes:
    width, inner = config.width, config.heads * config.head_width
    shapes = linear_shapes(f"{prefix}.adaLN_modulation.1", BLOCK_MODULATIONS * width, width)
    for name in ("to_q", "to_k", "to_v"):
        shapes |= linear_shapes(f"{prefix}.attn.{name}", inner, width)
    for name in ("q_norm", "k_norm"):
        shapes |= norm_shapes(f"{prefix}.attn.{name}", config.head_width)
    shapes |= linear_shapes(f"{prefix}.attn.proj", width, inner)
    shapes |= linear_shapes(f"{prefix}.mlp.fc1", config.feed_forward, width)
    shapes |= linear_shapes(f"{prefix}.mlp.fc2", width, config.feed_forward)
    for at in (1, 6):
        shapes |= convolution_shapes(f"{prefix}.conv.block.{at}", width, width, CONVOLUTION_TAPS)
    return shapes | norm_shapes(f"{prefix}.conv.block.3", width)


def read_flow_tensors(
    directory: ModelDirectory, config: StepDitConfig, device: torch.device, dtype: torch.dtype
) -> dict[str, Tensor]:
    """See `read_checked`. The encoder stays float32, as that of CosyVoice2."""
    return read_checked(directory, expected_tensors(config), device, dtype)
