"""The networks of CosyVoice3's flow and the maps in front of them (compatibility specification of
CosyVoice3, sections 4.1 and 4.2).
"""

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor

from cosyserve.spec import MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.checkpoint import ESTIMATOR
from services.token2wav.flow.dit.estimator import DitEstimator
from services.token2wav.flow.dit.weights import DitConfig
from services.token2wav.flow.layers import Linear, Tensors
from services.token2wav.flow.lookahead import LookAhead
from services.token2wav.flow.stream_cache import CachedPass


class DitNetwork:
    """See `FlowNetwork`."""

    def __init__(self, config: DitConfig, tensors: Mapping[str, Tensor]) -> None:
        weights = Tensors(tensors)
        self.look_ahead = LookAhead(weights.within("pre_lookahead_layer"))
        self.estimator = DitEstimator(weights.within(ESTIMATOR[:-1]), config)
        self._tokens = weights["input_embedding.weight"]
        # In the file's memory order, whose sums round as the reference's do.
        self._speaker = Linear(*(weights[f"spk_embed_affine_layer.{kind}"] for kind in ("weight", "bias")))

    def speaker(self, embedding: Tensor) -> Tensor:
        """float32 [..., 192] of any non-zero length -> [..., 80]: the embedding at unit length,
        projected.
        """
        return self._speaker(F.normalize(embedding, dim=-1))

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids [..., n] -> float32 [..., n, 80]."""
        return F.embedding(ids, self._tokens)

    def mu(
        self, ids: Tensor, ahead: Tensor, known: Tensor, before: list[int], cache: CachedPass, *, chunked: bool = False
    ) -> Tensor:
        """Token ids [rows, n] and their look-ahead [rows, 3], of which bool `known` [rows, 3]
        exists -> float32 [rows, 2n, 80].

        What a token becomes depends on the two tokens in front of it and the three behind it, so
        `before` and `chunked`, which place attention, change nothing.
        """
        seen = self.embed(ahead) * known[:, :, None]
        return self.look_ahead(self.embed(ids), seen, cache).repeat_interleave(MEL_FRAMES_PER_TOKEN, dim=1)
