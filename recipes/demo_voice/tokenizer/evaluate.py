"""How well codes carry what was said and how it sounded, on utterances that were not trained on."""

import contextlib
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from recipes.demo_voice.features import LOG_MEL_PER_TOKEN
from recipes.demo_voice.tokenizer import codes
from recipes.demo_voice.tokenizer.examples import Batch, Examples
from recipes.demo_voice.tokenizer.network import Network, mask_of
from recipes.demo_voice.tokenizer.trained import distance, greedy
from recipes.demo_voice.training import speech

_BATCH_TOKENS = 24_000
_SMALL_NOISE = 0.02


@contextlib.contextmanager
def exact() -> Iterator[None]:
    """Convolutions in full float32: what is encoded here must be encoded alike elsewhere."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def sound_loss(log_probabilities: Tensor, batch: Batch, lengths_here: list[int]) -> Tensor:
    """CTC loss per phone. log_probabilities: float32 [batch, time, classes]; rows too short for
    their phones count as 0.
    """
    # Lengths on the CPU: wherever they lie, torch brings them there, waiting for the device.
    lengths, counts = torch.tensor(lengths_here), torch.tensor(batch.counts_here)
    return F.ctc_loss(log_probabilities.transpose(0, 1), batch.targets, lengths, counts, zero_infinity=True)


def mel_error(values: Tensor, mel: Tensor, lengths: Tensor) -> Tensor:
    """Mean absolute difference within the rows. lengths: int64 [batch], mel frames."""
    mask = mask_of(lengths, mel.shape[1])
    return ((values.float() - mel).abs() * mask).sum() / (mask.sum() * mel.shape[2])


@torch.no_grad()
def evaluate(network: Network, examples: Examples, members: Sequence[int]) -> dict[str, float | int]:
    """phone_error: edits per phone of greedy reading. mel_l1. ctc. codes_used. entropy: bits.
    flips: share of codes that change under small noise on the log-mel."""
    device = examples.device
    used = torch.zeros(codes.count(network.sizes.digits), device=device)
    sums = torch.zeros(4, device=device)
    edits = phones = 0
    with exact():
        for chosen in speech.by_length(members, examples.features.tokens, _BATCH_TOKENS, np.random.default_rng(0)):
            batch = examples.batch(chosen)
            mask = mask_of(batch.lengths, batch.mel.shape[1] // 2)
            frames = LOG_MEL_PER_TOKEN * batch.lengths
            levels = torch.round(codes.bounded(network.encoder(batch.log_mel, frames)))
            noisy = codes.bounded(
                network.encoder(batch.log_mel + _SMALL_NOISE * torch.randn_like(batch.log_mel), frames)
            )
            spoken, within = codes.codes_of(levels), mask[..., 0]
            used.index_add_(0, spoken.flatten(), within.flatten())
            log_probabilities = network.phones(levels, mask)
            mel = network.mel(levels, batch.voices, torch.ones_like(batch.voices).float(), mask)
            mel_frames = 2.0 * batch.lengths.sum()
            sums += torch.stack(
                [
                    mel_error(mel, batch.mel, 2 * batch.lengths) * mel_frames,
                    mel_frames,
                    ((codes.codes_of(noisy) != spoken) * within).sum(),
                    sound_loss(log_probabilities, batch, batch.lengths_here) * len(chosen),
                ]
            )
            for member, symbols in zip(chosen, greedy(log_probabilities, batch.lengths), strict=True):
                edits += distance(symbols, examples.targets[member])
                phones += len(examples.targets[member])
    mel_sum, frames_sum, flips, ctc = sums.tolist()
    shares = (used / used.sum()).tolist()
    return {
        "phone_error": edits / max(1, phones),
        "mel_l1": mel_sum / frames_sum,
        "ctc": ctc / len(members),
        "codes_used": sum(share > 0 for share in shares),
        "entropy": -sum(share * math.log2(share) for share in shares if share > 0),
        "flips": flips / (frames_sum / 2),
    }
