"""Rotary positions of the DiT's queries and keys (compatibility specification of CosyVoice3,
section 4.4): Su et al., "RoFormer", 2021. Only the first head is rotated, because the reference
rotates before it splits the heads; the weights were trained so.
"""

import torch
from torch import Tensor


class Rotation:
    """The rotation of a block's frames. places: int64 [rows or 1, time], counted from the first
    prompt frame; frequencies: float32 [pairs], radians a frame.
    """

    def __init__(self, places: Tensor, frequencies: Tensor) -> None:
        self.angles = places[:, :, None] * frequencies
        self._cosine, self._sine = self.angles.cos(), self.angles.sin()

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., rows, time, 2 * pairs] with neighbouring channels as pairs -> the same shape."""
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        turned = (even * self._cosine - odd * self._sine, odd * self._cosine + even * self._sine)
        return torch.stack(turned, dim=-1).flatten(-2)

    def of_first_head(self, heads: Tensor) -> Tensor:
        """Queries, keys and values, [3, rows, heads, time, width]: turn the first head of queries
        and keys, in place; returns the argument.
        """
        first = heads[:2, :, 0]
        first.copy_(self(first))
        return heads
