"""Attention of a block's queries to everything up to the end of the block, as all estimators use
it, and where a pass is not a single block, which frames are real and which keys a query may see.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.stream_cache import CachedPass


def chunk_mask(frames: int, chunk: int, device: torch.device) -> Tensor:
    """bool [frames, frames]: query i may see key j where j < (i // chunk + 1) * chunk
    (compatibility specification of CosyVoice2, section 4.2; of CosyVoice3, section 4.4).
    """
    at = torch.arange(frames, device=device)
    return at[None, :] < (at[:, None] // chunk + 1) * chunk


class Mask:
    """frames: [rows, time, 1] of ones and zeros. allowed: bool [time, time] or None."""

    def __init__(self, frames: Tensor, allowed: Tensor | None = None) -> None:
        self.frames = frames
        real = frames.transpose(1, 2)[:, None] > 0
        self.keys = real if allowed is None else real & allowed
        """bool [rows, 1, time or 1, time]: whether a query may see a key."""


def real_frames(x: Tensor, mask: Mask | None) -> Tensor:
    """x [rows, time, channels] with zeros in padded frames."""
    return x if mask is None else x * mask.frames


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
