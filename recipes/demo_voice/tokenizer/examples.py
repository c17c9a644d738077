"""Batches of speech with what was said in it, put together on the device."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from recipes.demo_voice.features import LOG_MEL_PER_TOKEN, Features
from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.tokenizer.trained import Phones
from recipes.demo_voice.training.speech import Speech, gather
from services.frontend.tokenizers.phonemes.symbols import read_symbols

GRANULE = 8
"""Batches are a multiple of this many tokens long, so that few shapes occur."""


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
