"""How much of each row of a padded batch is speech."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Span:
    """Lengths of the rows of a batch at one rate.

    longest: L, at least the longest row. counts: float [B, 1, 1]. mask: float [B, 1, L], 1 inside
    the row; None when all rows are full.
    """

    longest: int
    counts: Tensor
    mask: Tensor | None

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device, longest: int = 0) -> "Span":
        longest = max(longest, *lengths)
        counts = torch.tensor(lengths, dtype=torch.float32, device=device).view(-1, 1, 1)
        if min(lengths) == longest:
            return cls(longest, counts, None)
        return cls(longest, counts, (torch.arange(longest, device=device) < counts).float())

    def clear(self, x: Tensor) -> Tensor:
        """x [B, C, L] with zeros past the end of every row; x itself, changed."""
        return x if self.mask is None else x.mul_(self.mask)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance over time of each channel, [B, C, 1] each. x [B, C, L] is zero past the
        end of every row.
        """
        variance, mean = torch.var_mean(x, dim=2, keepdim=True, correction=0)
        if self.mask is None:
            return mean, variance
        share = self.longest / self.counts
        square = (variance + mean * mean) * share
        mean = mean * share
        return mean, (square - mean * mean).clamp_(min=0.0)
