"""Attention of a block's queries to everything up to the end of the block, as both estimators use
it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.stream_cache import CachedPass


def split_heads(projected: Tensor, heads: int) -> Tensor:
    """Queries, keys and values side by side, [rows, time, 3 * heads * width] -> [3, rows, heads,
    time, width].
    """
    rows, time, _ = projected.shape
    return projected.view(rows, time, 3, heads, -1).permute(2, 0, 3, 1, 4)


def attend(projected: Tensor, cache: CachedPass, allowed: Tensor | None) -> Tensor:
    """A result of `split_heads` -> [rows, time, heads * width]. The keys and values go into the
    cache. allowed: bool [rows, 1, time or 1, keys], None: every key.
    """
    # Split instead of indexed: the gradient of indexing is a full tensor of zeros.
    queries, new = projected.split_with_sizes((1, 2))
    keys_values = [known.unbind() for known in cache.keys_values(new)]
    parts = [
        F.scaled_dot_product_attention(query, keys, values, attn_mask=allowed)
        for query, (keys, values) in zip(cache.split(queries.squeeze(0)), keys_values, strict=True)
    ]
    joined = parts[0] if len(parts) == 1 else torch.cat(parts)
    rows, _, time, _ = joined.shape
    return joined.transpose(1, 2).reshape(rows, time, -1)
