"""The sizes of CosyVoice3's flow in the yaml, and the tensors of its `flow.pt` (compatibility
specification of CosyVoice3, sections 1, 4 and 11).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import EULER_STEPS, LOOKAHEAD_TOKENS, MEL_BINS
from services.token2wav.flow.checkpoint import (
    COMMON_VALUES,
    ESTIMATOR,
    Shapes,
    convolution_shapes,
    guidance_and_temperature,
    linear_shapes,
    read_checked,
)
from services.token2wav.flow.solver import ROWS
from services.token2wav.inputs.model_files import YamlSection

TIME_SINUSOIDS = 256
POSITION_TAPS = 31
POSITION_GROUPS = 16
BLOCK_MODULATIONS = 6
FREQUENCIES = "rotary_embed.inv_freq"
_FIXED = COMMON_VALUES | {
    # The condition is the token embedding itself, so both are as wide as the mel.
    "input_size": MEL_BINS,
    "pre_lookahead_layer.in_channels": MEL_BINS,
    "pre_lookahead_layer.pre_lookahead_len": LOOKAHEAD_TOKENS,
    "decoder.estimator.mel_dim": MEL_BINS,
    "decoder.estimator.mu_dim": MEL_BINS,
    "decoder.estimator.spk_dim": MEL_BINS,
}
"""Values that the arithmetic here assumes."""


@dataclass(frozen=True, kw_only=True)
class DitConfig:
    """Layer sizes. lookahead_channels: between the two convolutions of the look-ahead layer. width:
    of the transformer, whose heads are head_width wide each.
    """

    vocabulary: int
    speaker: int
    lookahead_channels: int
    width: int
    depth: int
    heads: int
    head_width: int
    feed_forward: int
    guidance: float
    temperature: float = 1.0
    """Standard deviation of the noise that a sentence starts from."""

    @classmethod
    def read(cls, directory: ModelDirectory) -> "DitConfig":
        """Read from the yaml. ModelError names a key that is missing or has a value that is not
        implemented.
        """
        flow = YamlSection(directory, "flow")
        flow.require(_FIXED)
        guidance, temperature = guidance_and_temperature(directory, flow)
        width, heads, head_width = (flow.size(f"decoder.estimator.{name}") for name in ("dim", "heads", "dim_head"))
        if width % POSITION_GROUPS:
            raise flow.wrong("decoder.estimator.dim", width, f", expected a multiple of {POSITION_GROUPS}")
        if head_width % 2 or heads * head_width != width:
            raise ModelError(
                f"{directory.path}: flow.decoder.estimator.dim {width} is not heads {heads} times an even dim_head "
                f"{head_width}"
            )
        return cls(
            vocabulary=flow.size("vocab_size"),
            speaker=flow.size("spk_embed_dim"),
            lookahead_channels=flow.size("pre_lookahead_layer.channels"),
            width=width,
            depth=flow.size("decoder.estimator.depth"),
            heads=heads,
            head_width=head_width,
            feed_forward=width * flow.size("decoder.estimator.ff_mult"),
            guidance=guidance,
            temperature=temperature,
        )

    @property
    def position_width(self) -> None:
        """None: what comes before the estimator has no attention."""

    @property
    def encoder_bytes_per_frame(self) -> float:
        """0, for the same reason."""
        return 0.0

    def state_bytes_per_frame(self, estimator_dtype: torch.dtype = torch.float32) -> int:
        """Bytes by which a stream's keys and values grow with each mel frame."""
        return EULER_STEPS * ROWS * self.depth * 2 * self.width * estimator_dtype.itemsize


def expected_tensors(config: DitConfig) -> Shapes:
    """Name and shape of every tensor in `flow.pt`."""
    shapes: Shapes = {"input_embedding.weight": (config.vocabulary, MEL_BINS)}
    shapes |= linear_shapes("spk_embed_affine_layer", MEL_BINS, config.speaker)
    channels = config.lookahead_channels
    shapes |= convolution_shapes("pre_lookahead_layer.conv1", channels, MEL_BINS, LOOKAHEAD_TOKENS + 1)
    shapes |= convolution_shapes("pre_lookahead_layer.conv2", MEL_BINS, channels, 3)
    return shapes | {ESTIMATOR + name: shape for name, shape in _estimator(config)}


def _estimator(config: DitConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    width = config.width
    yield from linear_shapes("time_embed.time_mlp.0", width, TIME_SINUSOIDS).items()
    yield from linear_shapes("time_embed.time_mlp.2", width, width).items()
    yield from linear_shapes("input_embed.proj", width, 4 * MEL_BINS).items()
    for at in (1, 2):
        name = f"input_embed.conv_pos_embed.conv{at}.0"
        yield from convolution_shapes(name, width, width // POSITION_GROUPS, POSITION_TAPS).items()
    yield FREQUENCIES, (config.head_width // 2,)
    for at in range(config.depth):
        yield from _block(f"transformer_blocks.{at}", config).items()
    yield from linear_shapes("norm_out.linear", 2 * width, width).items()
    yield from linear_shapes("proj_out", MEL_BINS, width).items()


def _block(prefix: str, config: DitConfig) -> Shapes:
    width = config.width
    shapes = linear_shapes(f"{prefix}.attn_norm.linear", BLOCK_MODULATIONS * width, width)
    for name in ("to_q", "to_k", "to_v", "to_out.0"):
        shapes |= linear_shapes(f"{prefix}.attn.{name}", width, width)
    shapes |= linear_shapes(f"{prefix}.ff.ff.0.0", config.feed_forward, width)
    return shapes | linear_shapes(f"{prefix}.ff.ff.2", width, config.feed_forward)


def read_flow_tensors(
    directory: ModelDirectory, config: DitConfig, device: torch.device, dtype: torch.dtype
) -> dict[str, Tensor]:
    """See `read_checked`. The rotary frequencies stay float32: half-precision numbers cannot tell
    neighbouring frames apart late in a sentence.
    """
    return read_checked(directory, expected_tensors(config), device, dtype, [ESTIMATOR + FREQUENCIES])
