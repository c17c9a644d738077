"""The networks of CosyVoice2's flow and the three linear maps around them (compatibility
specification of CosyVoice2, sections 4.1 and 4.7).
"""

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.layers import Linear, Tensors
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.flow.unet.encoder import Encoder
from services.token2wav.flow.unet.estimator import Estimator
from services.token2wav.flow.unet.weights import UnetConfig


class UnetNetwork:
    """See `FlowNetwork`. Training builds exactly the network that is served."""

    def __init__(self, config: UnetConfig, tensors: Mapping[str, Tensor]) -> None:
        weights = Tensors(tensors)
        self.encoder = Encoder(weights.within("encoder"), heads=config.encoder_heads, layers=config.encoder_layers)
        self.estimator = Estimator(
            weights.within(ESTIMATOR[:-1]),
            heads=config.estimator_heads,
            transformers=config.transformers,
            middle=config.middle,
        )
        self._tokens = weights["input_embedding.weight"]
        self._speaker = Linear.of(weights.within("spk_embed_affine_layer"))
        self._project = Linear.of(weights.within("encoder_proj"))

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
        seen = self.embed(ahead) * known[:, :, None]
        return self._project(self.encoder(self.embed(ids), seen, before, cache, chunked=chunked))
