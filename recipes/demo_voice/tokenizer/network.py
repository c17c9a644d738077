"""The tokenizer's network: an encoder of local context, and two readers of its codes that exist for
training.

The encoder hears about a third of a second on each side, so that a code says what is spoken at its
place and not who speaks where. Rows of a batch may be padded at their ends: every row comes out as
it would alone.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosyserve.spec import MEL_BINS
from services.frontend.prompts.features import whisper_mel


@dataclass(frozen=True)
class Sizes:
    """digits: ternary digits of a code. phones: classes of the phone reader, blank not counted.
    voices: rows of its speaker table.
    """

    digits: int
    phones: int
    voices: int
    width: int = 256
    blocks: int = 4
    kernel: int = 5


def mask_of(lengths: Tensor, longest: int) -> Tensor:
    """int64 [batch] -> float32 [batch, longest, 1]: 1 within a row's length, 0 past it."""
    return (torch.arange(longest, device=lengths.device)[None] < lengths[:, None]).float()[..., None]


class Block(nn.Module):
    """ConvNeXt's block: a depthwise convolution over time, then two layers over channels, added to
    what came in.
    """

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.over_time = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))
        self._dropout = dropout

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """[batch, time, width] -> the same. mask: [batch, time, 1]."""
        hidden = over_time(self.over_time, inputs * mask)
        hidden = F.dropout(F.gelu(self.wide(self.norm(hidden))), self._dropout, self.training)
        return inputs + F.dropout(self.narrow(hidden) * self.scale, self._dropout, self.training)


def over_time(convolution: nn.Conv1d, inputs: Tensor) -> Tensor:
    """A convolution on [batch, time, channels]."""
    return cast(Tensor, convolution(inputs.transpose(1, 2))).transpose(1, 2)


class Encoder(nn.Module):
    """Whisper's log-mel at 100 Hz to the values of a code's digits at 25 Hz. A row of T frames
    gives ceil(T / 4) codes.
    """

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.halve = nn.Conv1d(whisper_mel.BINS, sizes.width, 3, stride=2, padding=1)
        self.quarter = nn.Conv1d(sizes.width, sizes.width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList([Block(sizes.width, sizes.kernel, dropout) for _ in range(sizes.blocks)])
        self.norm = nn.LayerNorm(sizes.width)
        self.digits = nn.Linear(sizes.width, sizes.digits)
        self._dropout = dropout
        # All levels are in use from the first step: what enters tanh has about unit variance.
        nn.init.normal_(self.digits.weight, std=sizes.width**-0.5)

    def forward(self, log_mel: Tensor, lengths: Tensor) -> Tensor:
        """float32 [batch, T, 128] -> float32 [batch, ceil(T / 4), digits], to be bounded; past a
        row's end the values mean nothing.

        lengths: int64 [batch], frames of each row.
        """
        hidden = log_mel * mask_of(lengths, log_mel.shape[1])
        for convolution in (self.halve, self.quarter):
            hidden = F.gelu(over_time(convolution, hidden))
            lengths = (lengths + 1) // 2
            hidden = hidden * mask_of(lengths, hidden.shape[1])
        mask = mask_of(lengths, hidden.shape[1])
        hidden = F.dropout(hidden, self._dropout, self.training)
        for block in self.blocks:
            hidden = block(hidden, mask)
        return cast(Tensor, self.digits(self.norm(hidden))).float()


class PhoneReader(nn.Module):
    """Levels to phones by connectionist temporal classification; class 0 is the blank."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.up = nn.Linear(sizes.digits, sizes.width)
        self.blocks = nn.ModuleList([Block(sizes.width, 3, dropout) for _ in range(2)])
        self.phones = nn.Linear(sizes.width, 1 + sizes.phones)

    def forward(self, levels: Tensor, mask: Tensor) -> Tensor:
        """[batch, time, digits] -> float32 log probabilities [batch, time, 1 + phones]."""
        hidden = self.up(levels)
        for block in self.blocks:
            hidden = block(hidden, mask)
        return cast(Tensor, self.phones(hidden)).float().log_softmax(-1)


class MelReader(nn.Module):
    """Levels and the speaker to the mel of the vocoder, 50 Hz: what the codes need not carry of the
    voice comes from a table.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.up = nn.Linear(sizes.digits, sizes.width)
        self.voices = nn.Embedding(sizes.voices, sizes.width)
        self.slow = nn.ModuleList([Block(sizes.width, 7, 0.0) for _ in range(3)])
        self.fast = nn.ModuleList([Block(sizes.width, 7, 0.0) for _ in range(3)])
        self.mel = nn.Conv1d(sizes.width, MEL_BINS, 7, padding=3)
        nn.init.normal_(self.voices.weight, std=0.1)

    def forward(self, levels: Tensor, voices: Tensor, known: Tensor, mask: Tensor) -> Tensor:
        """[batch, time, digits] -> [batch, 2 * time, 80].

        voices: int64 [batch]. known: float32 [batch], 1 where the voice may be looked up, 0 where
        it is withheld.
        """
        hidden = self.up(levels) + (self.voices(voices) * known[:, None])[:, None]
        for block in self.slow:
            hidden = block(hidden, mask)
        hidden, mask = hidden.repeat_interleave(2, 1), mask.repeat_interleave(2, 1)
        for block in self.fast:
            hidden = block(hidden, mask)
        return over_time(self.mel, hidden * mask)


class Network(nn.Module):
    """Encoder and both readers."""

    def __init__(self, sizes: Sizes, dropout: float = 0.0) -> None:
        super().__init__()
        self.sizes = sizes
        self.encoder = Encoder(sizes, dropout)
        self.phones = PhoneReader(sizes, dropout)
        self.mel = MelReader(sizes)
