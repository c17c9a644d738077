"""Batches of speech with what was said in it, put together on the device, and how training varies
them so that codes follow the sounds and not the recording.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from recipes.demo_voice.features import LOG_MEL_PER_TOKEN, Features
from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.tokenizer.trained import Phones
from recipes.demo_voice.training.speech import Speech, gather
from services.frontend.tokenizers.phonemes.symbols import read_symbols

GRANULE = 8
"""Batches are a multiple of this many tokens long, so that few shapes occur."""

LEAST_SPEED, MOST_SPEED = 0.88, 1.14
_WARP = 0.06
_LONGEST_TIME_MASK = 8
_WIDEST_BAND_MASK = 22


@dataclass(frozen=True)
class Batch:
    """Utterances side by side; rows past their length hold other speech.

    log_mel: float32 [batch, 4 * longest, 128]. mel: float32 [batch, 2 * longest, 80]. lengths:
    int64 [batch], tokens. targets: int64 [batch, most], phone classes. counts: int64 [batch].
    voices: int64 [batch], rows of the voice table. lengths_here, counts_here: the same numbers as
    plain lists, known without asking the device.
    """

    log_mel: Tensor
    mel: Tensor
    lengths: Tensor
    targets: Tensor
    counts: Tensor
    voices: Tensor
    lengths_here: list[int]
    counts_here: list[int]


class Examples:
    """All utterances of a work folder with their phones and voices, on one device."""

    def __init__(self, work: Path, device: torch.device) -> None:
        self.device = device
        self.speech = Speech.read(work, audio=False)
        self.features = Features.read(work, self.speech, device, only=("mel", "log_mel"))
        self.phones = Phones.among(read_symbols(model_directory(work).file("phonemes/symbols.json")))
        self.voices = sorted({each.voice for each in self.speech.utterances})
        voice_rows = {voice: row for row, voice in enumerate(self.voices)}
        self.targets = [self.phones.of(each.phonemes) for each in self.speech.utterances]
        counts = [len(target) for target in self.targets]
        self._counts = torch.tensor(counts, device=device)
        self._first_target = self._counts.cumsum(0) - self._counts
        # One more, so that the table is never empty for `gather`.
        self._all_targets = torch.tensor([phone for target in self.targets for phone in target] + [0], device=device)
        self._voice_rows = torch.tensor([voice_rows[each.voice] for each in self.speech.utterances], device=device)
        self._tokens = torch.tensor(self.features.tokens, device=device)

    def batch(self, members: Sequence[int]) -> Batch:
        """Utterances by number; the only thing that travels to the device is this list, without
        waiting for it.
        """
        chosen = torch.tensor(members)
        if self.device.type == "cuda":
            chosen = chosen.pin_memory().to(self.device, non_blocking=True)
        lengths_here = [self.features.tokens[member] for member in members]
        counts_here = [len(self.targets[member]) for member in members]
        longest = -(-max(lengths_here) // GRANULE) * GRANULE
        first = self.features.first_on_device[chosen]
        return Batch(
            log_mel=gather(self.features.log_mel, LOG_MEL_PER_TOKEN * first, LOG_MEL_PER_TOKEN * longest).float(),
            mel=gather(self.features.mel, 2 * first, 2 * longest).float(),
            lengths=self._tokens[chosen],
            targets=gather(self._all_targets, self._first_target[chosen], max(*counts_here, 1)),
            counts=self._counts[chosen],
            voices=self._voice_rows[chosen],
            lengths_here=lengths_here,
            counts_here=counts_here,
        )

    def log_mel(self, member: int) -> Tensor:
        """float32 [frames, 128] of one utterance, on the device."""
        first, tokens = self.features.first[member], self.features.tokens[member]
        return self.features.log_mel[LOG_MEL_PER_TOKEN * first :][: LOG_MEL_PER_TOKEN * tokens].float()


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
