"""Pieces of utterances as the speaker encoder hears them in training, cut and disturbed on the
device.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from recipes.demo_voice.features import FBANK_PER_TOKEN, Features

UNFINISHED_FRAMES = 2
"""The last frames of an utterance's filterbank, which `Features` repeats to fill up its last
token.
"""
CROP_FRAMES = (100, 150, 200, 300)
_NOISE_BELOW = (1.0, 7.0)
"""Natural-log energy by which added noise lies below the mean of the speech: 4 to 30 dB."""
_MASKED_BINS, _MASKED_FRAMES = 12, 20


class RandomPieces:
    """Endless random picks among utterances; a rare voice is heard more often than its share, as
    one over the square root of it.
    """

    def __init__(self, members: Sequence[int], voices: Sequence[str], rng: np.random.Generator) -> None:
        """members: utterances to pick from. voices: voice id of every utterance."""
        counts = Counter(voices[member] for member in members)
        weights = np.array([counts[voices[member]] ** -0.5 for member in members])
        self._members = np.array(members)
        self._steps = np.cumsum(weights) / weights.sum()
        self._rng = rng

    def next(self, count: int) -> tuple[Tensor, int]:
        """Utterances int64 [count] on the CPU, and how many frames to take of each."""
        places = np.searchsorted(self._steps, self._rng.random(count)).clip(max=len(self._members) - 1)
        return torch.from_numpy(self._members[places]), int(self._rng.choice(CROP_FRAMES))


class Crops:
    """Cuts `features.fbank`; everything lies on its device."""

    def __init__(self, features: Features) -> None:
        self._fbank = features.fbank
        device = features.fbank.device
        self._first = FBANK_PER_TOKEN * features.first_on_device
        self._frames = torch.tensor([frames_of(tokens) for tokens in features.tokens], device=device)

    def cut(self, members: Tensor, count: int) -> Tensor:
        """Utterances int64 [B] -> float32 [B, count, 80] from a random place of each; a shorter
        utterance is repeated.
        """
        frames = self._frames[members]
        begin = (torch.rand(len(members), device=members.device) * (frames - count + 1).clamp(min=1)).long()
        places = (begin[:, None] + torch.arange(count, device=members.device)) % frames[:, None]
        return self._fbank[self._first[members][:, None] + places].float()

    def whole(self, members: Tensor, frames: int) -> Tensor:
        """Utterances int64 [B] that are all `frames` long -> float32 [B, frames, 80]."""
        return self._fbank[self._first[members][:, None] + torch.arange(frames, device=members.device)].float()


def frames_of(tokens: int) -> int:
    """Frames of Kaldi's filterbank in an utterance of `tokens` tokens."""
    return FBANK_PER_TOKEN * tokens - UNFINISHED_FRAMES


def centred(features: Tensor) -> Tensor:
    """[B, T, 80] with the mean over time taken off each bin, as the frontend does."""
    return features - features.mean(dim=1, keepdim=True)


def disturbed(features: Tensor) -> Tensor:
    """Log energies [B, T, 80] with a noise floor added to half of the rows, centred, and with a
    band and a stretch of time masked.

    Gain and colouring that do not change over time would vanish with the mean; noise and what is
    missing do not.
    """
    rows, frames, bins = features.shape
    device = features.device

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.rand(shape, device=device) * (high - low) + low

    level = features.mean(dim=(1, 2), keepdim=True) - uniform(*_NOISE_BELOW, rows, 1, 1)
    slope = uniform(-2.0, 2.0, rows, 1, 1) * torch.linspace(-1.0, 1.0, bins, device=device)
    noise = level + slope + 0.5 * torch.randn_like(features)
    noisy = torch.rand(rows, 1, 1, device=device) < 0.5
    features = centred(torch.where(noisy, torch.logaddexp(features, noise), features)) + 0.05 * torch.randn_like(
        features
    )
    hidden = (
        _stretch(rows, bins, _MASKED_BINS, device)[:, None, :]
        | _stretch(rows, frames, _MASKED_FRAMES, device)[:, :, None]
    )
    return features.masked_fill(hidden, 0.0)


def _stretch(rows: int, length: int, most: int, device: torch.device) -> Tensor:
    """bool [rows, length]: one random stretch of fewer than `most` places in each row."""
    width = (torch.rand(rows, 1, device=device) * most).long()
    begin = (torch.rand(rows, 1, device=device) * length).long()
    places = torch.arange(length, device=device)
    return (places >= begin) & (places < begin + width)
