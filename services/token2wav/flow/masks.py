"""Which frames are real and which keys a query may see, where a pass is not a single block."""

import torch
from torch import Tensor


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
