"""What a training example goes through so that codes follow the sounds and not the recording."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

LEAST_SPEED, MOST_SPEED = 0.88, 1.14
_WARP = 0.06
_LONGEST_TIME_MASK = 8
_WIDEST_BAND_MASK = 22


def stretched(log_mel: Tensor, mel: Tensor, lengths: Tensor, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """The batch spoken faster or slower: `tokens` long in all.

    log_mel: [batch, 4 * time, 128]. mel: [batch, 2 * time, 80]. lengths: int64 [batch], in tokens.
    """
    before = mel.shape[1] // 2
    return _interpolated(log_mel, 4 * tokens), _interpolated(mel, 2 * tokens), lengths * tokens // before


def stretch(longest: int, granule: int, rng: np.random.Generator) -> int:
    """A new length for a batch of `longest` tokens, a multiple of `granule` so that few shapes
    occur.
    """
    return max(1, round(longest * rng.uniform(LEAST_SPEED, MOST_SPEED) / granule)) * granule


def disguised(log_mel: Tensor) -> Tensor:
    """Another vocal tract, loudness, spectral tilt and noise floor for each row; short gaps in time
    and bands are flattened.

    log_mel: float32 [batch, 100 Hz frames, 128].
    """
    rows, frames, bins = log_mel.shape
    device = log_mel.device

    def normal() -> Tensor:
        return torch.randn(rows, 1, 1, device=device)

    warped = _warped(log_mel, 1 + _WARP * (2 * torch.rand(rows, device=device) - 1))
    tilt = torch.linspace(-1, 1, bins, device=device)
    noise = 0.12 * torch.rand(rows, 1, 1, device=device) * torch.randn_like(warped)
    heard = warped + 0.12 * normal() + 0.15 * normal() * tilt + noise
    gaps = _spans(rows, frames, max(1, frames // 100), _LONGEST_TIME_MASK, device)
    bands = _spans(rows, bins, 2, _WIDEST_BAND_MASK, device)
    return torch.where(gaps[:, :, None] | bands[:, None, :], heard.mean((1, 2), keepdim=True), heard)


def _interpolated(values: Tensor, length: int) -> Tensor:
    return F.interpolate(values.transpose(1, 2), size=length, mode="linear").transpose(1, 2)


def _warped(values: Tensor, factors: Tensor) -> Tensor:
    """Bin j of each row takes what stood at j * factor, linearly interpolated, as one matrix
    product.
    """
    places = torch.arange(values.shape[2], device=values.device)
    sources = (places[None] * factors[:, None]).clamp(max=values.shape[2] - 1)
    return torch.bmm(values, (1 - (places[None, :, None] - sources[:, None, :]).abs()).clamp(min=0))


def _spans(rows: int, length: int, count: int, widest: int, device: torch.device) -> Tensor:
    """bool [rows, length]: true within `count` spans of random place and width a row."""
    starts = torch.rand(rows, count, 1, device=device) * length
    widths = torch.rand(rows, count, 1, device=device) * widest
    places = torch.arange(length, device=device)
    return ((places >= starts) & (places < starts + widths)).any(1)
