"""The reference's cross-fade between two vocoder calls. Its halves sum to 1.08, so the overlap is 8
% too loud; only the `upstream` profile uses it.
"""

import torch
from torch import Tensor

OVERLAP_FRAMES = 8
OVERLAP_SAMPLES = 3840


def hamming_window() -> Tensor:
    """Symmetric Hamming window [7680], float64: 0.54 - 0.46 cos(2 pi n / 7679)."""
    return torch.hamming_window(2 * OVERLAP_SAMPLES, periodic=False, alpha=0.54, beta=0.46, dtype=torch.float64)


def crossfade(new: Tensor, old: Tensor, window: Tensor) -> Tensor:
    """Fade in the first 3840 samples of `new` [N] over `old` [3840], in float64. Source:
    compatibility specification section 6.2.
    """
    seam = new[:OVERLAP_SAMPLES].double() * window[:OVERLAP_SAMPLES] + old.double() * window[OVERLAP_SAMPLES:]
    return torch.cat([seam.to(new.dtype), new[OVERLAP_SAMPLES:]])
