"""Every utterance as codes, and which of its symbols each code stands for: CTC forced alignment
with the phones that are known.

`label` writes into the tokenizer's folder, in the order and with the offsets of `Speech.first`:
codes.npy int16 [tokens], place.npy int16 [tokens], the index among the utterance's text ids ('^'
and its phonemes) of the symbol spoken at that token or -1 between sounds, and aligned.npy bool
[utterances], false where the speech is too short for its phones.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from recipes.demo_voice.features import LOG_MEL_PER_TOKEN
from recipes.demo_voice.tokenizer.evaluate import exact
from recipes.demo_voice.tokenizer.examples import Examples
from recipes.demo_voice.tokenizer.trained import ALIGNED, CODES, PLACES, TrainedTokenizer
from recipes.demo_voice.training.speech import by_length

_BATCH_TOKENS = 48_000
_NEVER = -1e9


@torch.no_grad()
def label(tokenizer: TrainedTokenizer, examples: Examples, folder: Path) -> dict[str, int]:
    """Write the three files; returns how many tokens and utterances there are and how many of the
    latter could not be aligned.
    """
    device, features = examples.device, examples.features
    total = sum(features.tokens)
    spoken = torch.zeros(total, dtype=torch.int16, device=device)
    places = torch.full((total,), -1, dtype=torch.int16, device=device)
    aligned = np.zeros(len(features.tokens), dtype=bool)
    symbols = [examples.phones.places(each.phonemes) for each in examples.speech.utterances]
    everyone = [member for member, target in enumerate(examples.targets) if target]
    batched = by_length(everyone, features.tokens, _BATCH_TOKENS, np.random.default_rng(0))
    with exact():
        for chosen in tqdm(batched, desc="codes and alignment", unit="batch", mininterval=5.0):
            batch = examples.batch(chosen)
            ids = tokenizer.codes_of_speech(batch.log_mel, LOG_MEL_PER_TOKEN * batch.lengths)
            targets, exists = align(
                tokenizer.read_codes(ids, batch.lengths), batch.lengths, batch.targets, batch.counts
            )
            most = batch.targets.shape[1]
            rows = [symbols[member] + [-1] * (most - len(symbols[member])) for member in chosen]
            table = torch.tensor(rows, dtype=torch.int16, device=device)
            at_symbol = torch.where(targets >= 0, table.gather(1, targets.clamp(min=0)), -1)
            columns = torch.arange(ids.shape[1], device=device)[None]
            within = columns < batch.lengths[:, None]
            first = torch.tensor([features.first[member] for member in chosen], device=device)
            where = (first[:, None] + columns)[within]
            spoken[where] = ids[within].to(torch.int16)
            places[where] = at_symbol[within].to(torch.int16)
            aligned[chosen] = exists.cpu().numpy()
    np.save(folder / CODES, spoken.cpu().numpy())
    np.save(folder / PLACES, places.cpu().numpy())
    np.save(folder / ALIGNED, aligned)
    return {"tokens": total, "utterances": len(aligned), "not_aligned": int((~aligned).sum())}


@torch.no_grad()
def align(log_probabilities: Tensor, lengths: Tensor, targets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Which target sounds at each time, on the likeliest path through a reader's probabilities.

    log_probabilities: float32 [batch, time, classes], class 0 the blank. lengths: int64 [batch],
    times of each row. targets: int64 [batch, most], classes. counts: int64 [batch], targets of each
    row, at least one. Returns int64 [batch, time], the place in `targets` or -1 for blank and past
    the row's end, and bool [batch]: false where no path exists because the row is too short, its
    places then all -1.
    """
    rows, times, _ = log_probabilities.shape
    device = log_probabilities.device
    # States alternate: blank, first target, blank, second target, ... blank.
    labels = torch.zeros(rows, 2 * targets.shape[1] + 1, dtype=torch.long, device=device)
    labels[:, 1::2] = targets
    may_skip = torch.zeros_like(labels, dtype=torch.bool)
    may_skip[:, 2:] = (labels[:, 2:] != 0) & (labels[:, 2:] != labels[:, :-2])
    emitted = log_probabilities.gather(2, labels[:, None].expand(-1, times, -1))
    score = torch.full_like(emitted[:, 0], _NEVER)
    score[:, :2] = emitted[:, 0, :2]
    final = score
    moves = torch.zeros(times, *labels.shape, dtype=torch.int8, device=device)
    for time in range(1, times):
        stay, step = score, F.pad(score, (1, 0), value=_NEVER)[:, :-1]
        skip = torch.where(may_skip, F.pad(score, (2, 0), value=_NEVER)[:, :-2], _NEVER)
        best, move = torch.stack([stay, step, skip]).max(0)
        score = best + emitted[:, time]
        moves[time] = move
        final = torch.where((lengths == time + 1)[:, None], score, final)
    ends = torch.stack([2 * counts - 1, 2 * counts], 1)
    reached, which = final.gather(1, ends).max(1)
    exists = reached > _NEVER / 2
    return _places(moves, ends.gather(1, which[:, None]), lengths, exists), exists


def _places(moves: Tensor, state: Tensor, lengths: Tensor, exists: Tensor) -> Tensor:
    """Back along `moves` [time, batch, states] from each row's last `state` [batch, 1]."""
    places = []
    for time in reversed(range(moves.shape[0])):
        within = (lengths > time)[:, None]
        places.append(torch.where(within & exists[:, None] & (state % 2 == 1), state // 2, -1))
        state = torch.where(within, state - moves[time].gather(1, state), state)
    return torch.cat(places[::-1], 1)
