"""The likeliest path of known sounds through a reader's probabilities: CTC forced alignment of a
whole batch on any device.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

_NEVER = -1e9


@torch.no_grad()
def align(log_probabilities: Tensor, lengths: Tensor, targets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Which target sounds at each time.

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
