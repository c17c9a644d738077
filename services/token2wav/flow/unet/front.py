"""What comes before the estimator of CosyVoice2's flow and of others with its encoder: sizes, the
tensors of `flow.pt`, and the three linear maps around the conformer (compatibility specification of
CosyVoice2, sections 4.1 and 4.7).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import LOOKAHEAD_TOKENS, MEL_BINS, MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.checkpoint import Shapes, convolution_shapes, linear_shapes, norm_shapes
from services.token2wav.flow.layers import Linear, Tensors
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.flow.unet.encoder import UPSAMPLED_LAYERS, Encoder
from services.token2wav.inputs.model_files import YamlSection


@dataclass(frozen=True, kw_only=True)
class FrontConfig:
    """Layer sizes. encoder_*: of the conformer."""

    vocabulary: int
    speaker: int
    input_width: int
    encoder_width: int
    encoder_heads: int
    encoder_feed_forward: int
    encoder_layers: int
    encoder_upsampled_layers: int = UPSAMPLED_LAYERS
    guidance: float
    temperature: float = 1.0
    """Standard deviation of the noise that a sentence starts from."""

    @property
    def position_width(self) -> int:
        """Of the conformer's position tables."""
        return self.encoder_width

    @property
    def encoder_bytes_per_frame(self) -> float:
        """Of keys and values of the conformer, which are float32, one row, and half of them per
        token.
        """
        layers = self.encoder_layers / MEL_FRAMES_PER_TOKEN + self.encoder_upsampled_layers
        return 2 * layers * self.encoder_width * torch.float32.itemsize


def front_sizes(directory: ModelDirectory, flow: YamlSection) -> dict[str, Any]:
    """The fields of FrontConfig but those of the solver. Raises ModelError naming the key."""
    width, heads = flow.size("encoder.output_size"), flow.size("encoder.attention_heads")
    if width % (2 * heads):
        raise ModelError(
            f"{directory.path}: flow.encoder.output_size {width} is no even multiple of "
            f"flow.encoder.attention_heads {heads}"
        )
    return {
        "vocabulary": flow.size("vocab_size"),
        "speaker": flow.size("spk_embed_dim"),
        "input_width": flow.size("input_size"),
        "encoder_width": width,
        "encoder_heads": heads,
        "encoder_feed_forward": flow.size("encoder.linear_units"),
        "encoder_layers": flow.size("encoder.num_blocks"),
    }


def front_tensors(config: FrontConfig) -> Shapes:
    """Name and shape of every tensor in `flow.pt` outside the estimator."""
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
    for stack, layers in (("encoders", config.encoder_layers), ("up_encoders", config.encoder_upsampled_layers)):
        for layer in range(layers):
            shapes |= _conformer(f"encoder.{stack}.{layer}", config)
    return shapes


def _conformer(prefix: str, config: FrontConfig) -> Shapes:
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


class ConformerFront:
    """`FlowNetwork` without its estimator."""

    def __init__(self, config: FrontConfig, tensors: Mapping[str, Tensor]) -> None:
        weights = Tensors(tensors)
        self.encoder = Encoder(
            weights.within("encoder"),
            heads=config.encoder_heads,
            layers=config.encoder_layers,
            upsampled_layers=config.encoder_upsampled_layers,
        )
        self._tokens = weights["input_embedding.weight"]
        self._speaker = Linear.of(weights.within("spk_embed_affine_layer"))
        self.project = Linear.of(weights.within("encoder_proj"))

    def speaker(self, embedding: Tensor) -> Tensor:
        """float32 [..., 192] of any non-zero length -> [..., 80]: the embedding at unit length,
        projected.
        """
        return self._speaker(F.normalize(embedding, dim=-1))

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids [..., n] -> the encoder's input, float32 [..., n, width]."""
        return self.encoder.embed(F.embedding(ids, self._tokens))

    def mu(
        self, ids: Tensor, ahead: Tensor, known: Tensor, before: list[int], cache: CachedPass, *, chunked: bool = False
    ) -> Tensor:
        """Token ids [rows, n] and their look-ahead [rows, 3], of which bool `known` [rows, 3]
        exists -> float32 [rows, 2n, 80].

        Missing look-ahead becomes zeros after the embedding. before, cache and chunked: as for the
        encoder.
        """
        return self.project(self.encoded(ids, ahead, known, before, cache, chunked=chunked))

    def encoded(
        self, ids: Tensor, ahead: Tensor, known: Tensor, before: list[int], cache: CachedPass, *, chunked: bool = False
    ) -> Tensor:
        """The same in front of the last linear map, float32 [rows, 2n, width]."""
        seen = self.embed(ahead) * known[:, :, None]
        return self.encoder(self.embed(ids), seen, before, cache, chunked=chunked)
