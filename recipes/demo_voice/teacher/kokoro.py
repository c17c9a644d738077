"""Kokoro-82M: phonemes and a style in, speech out, many sentences at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from recipes.demo_voice.teacher.decoder import FRAME, STYLE_OF_PROSODY, STYLE_OF_SOUND, Decoder
from recipes.demo_voice.teacher.encoder import Albert, Prosody, TextEncoder
from recipes.demo_voice.teacher.layers import Span

MOST_TOKENS = 510
"""Phonemes of one sentence; the boundary symbols at either end come on top."""


@dataclass(frozen=True)
class SpeechRequest:
    """One sentence to speak: ids of its phonemes, a style float32 [256], and how much faster than
    usual.
    """

    tokens: list[int]
    style: NDArray[np.float32]
    speed: float = 1.0


class Kokoro(nn.Module):
    """The whole model. Parameters are named as in the published checkpoint.

    width: channels between the parts, by which all others go; the published model has 512. grain:
    batches are padded to a whole number of these, in phonemes and in frames. A GPU library chooses
    its algorithms again for every shape, which costs more than some padding.
    """

    def __init__(self, width: int = 512, grain: int = 1) -> None:
        super().__init__()
        self.grain = grain
        self.bert = Albert(width=width * 3 // 2, inner=4 * width, embedded=width // 4)
        self.bert_encoder = nn.Linear(width * 3 // 2, width)
        self.predictor = Prosody(width)
        self.text_encoder = TextEncoder(width)
        self.decoder = Decoder(width)

    @torch.inference_mode()
    def speak(self, orders: Sequence[SpeechRequest], noise: torch.Generator | None = None) -> list[Tensor]:
        """Samples at 24 kHz of each order, float32 on the device of the model.

        noise: draws the breath of unvoiced sounds, on the device of the model; without it the
        source is silent there and every order comes out the same in any company. Raises ValueError
        when a sentence is empty or too long.
        """
        if any(not 0 < len(order.tokens) <= MOST_TOKENS for order in orders):
            raise ValueError(f"a sentence has 1 to {MOST_TOKENS} phonemes")
        device = self.bert_encoder.weight.device
        lengths = [len(order.tokens) + 2 for order in orders]
        tokens = self._stack([torch.tensor([0, *order.tokens, 0]) for order in orders]).to(device)
        style = torch.from_numpy(np.stack([order.style for order in orders])).to(device)
        speed = torch.tensor([order.speed for order in orders], device=device)
        span = Span.of(lengths, device, tokens.shape[1])
        sound, prosody = style[:, STYLE_OF_SOUND], style[:, STYLE_OF_PROSODY]

        context = self.bert_encoder(self.bert(tokens, span))
        features, durations = self.predictor.durations(context, prosody, speed, lengths)
        sounds = self.text_encoder(tokens, span, lengths)

        # The one place where the device is waited for: how long the sentences are decides every
        # shape from here on.
        spoken = [row[:length] for row, length in zip(durations.cpu(), lengths, strict=True)]
        frames = [int(row.sum()) for row in spoken]
        which = self._stack([torch.arange(len(row)).repeat_interleave(row) for row in spoken]).to(device)
        frame_span = Span.of(frames, device, which.shape[1])
        double = Span.of([2 * each for each in frames], device, 2 * which.shape[1])
        pitch, energy = self.predictor.curves(_take(features, which), prosody, frames, frame_span, double)
        aligned = frame_span.clear(_take(sounds, which).transpose(1, 2).contiguous())
        samples = self.decoder(aligned, pitch, energy, sound, frames, noise)
        return [row[: FRAME * each] for row, each in zip(samples, frames, strict=True)]

    def _stack(self, rows: list[Tensor]) -> Tensor:
        stacked = pad_sequence(rows, batch_first=True)
        return F.pad(stacked, (0, -stacked.shape[1] % self.grain))


def _take(x: Tensor, which: Tensor) -> Tensor:
    """Rows `which` [B, T] of x [B, L, C]: [B, T, C]."""
    return x.gather(1, which.unsqueeze(2).expand(-1, -1, x.shape[2]))
