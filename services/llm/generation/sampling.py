"""Repetition-aware sampling (RAS) over float32 log-probabilities, with counter-based draws.

This is the readable definition; every other implementation has to choose the same ids. All
arithmetic after the log-probabilities is float64:

    w[i] = exp(logp[i] - max(logp)), p = w / sum(w)        masked entries are -inf, so their w is 0
    nucleus: walk the ids by descending logp, the lower id first among equals; accept while the
        p accepted so far add up to less than top_p and fewer than top_k are accepted
    draw 0 among the nucleus, in the order of the walk, in proportion to p
    if the drawn id fills at least tau_r of the last win_size decisions: draw 1 among all other
        ids, in id order, in proportion to w
    a draw: u = uniform(key=seed, stream=sentence, step=decision, draw), c = running sum of the
        weights from the first to the last; the choice is the first item with c > u * c[last], or
        the last item with a weight if rounding leaves none

Source: compatibility specification section 3.3; repetition-aware sampling is from VALL-E 2 (Chen et
al., 2024).
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cosyserve import philox
from services.llm.generation.config import SamplingParameters

Scores = NDArray[np.float32]
"""Log-probabilities [ids] of one decision, of all ids of the head; masked ids hold -inf."""
_VANISHES = -746.0
"""exp of this and of anything less is 0 in float64."""


class Chooser(Protocol):
    """Chooses an id by the log-probabilities of one decision."""

    def choose(self, scores: Scores, decisions: Sequence[int], /) -> int:
        """The id of decision number len(decisions).

        scores: float32 log-probabilities [ids], -inf for ids that may not be chosen, at least one
        finite; not changed. decisions: all decisions before this one, fill ids included.
        """


Draw = Callable[[NDArray[np.float64], int, int], int]
"""Draws an index by weights (not all 0, of any sum), the number of the decision and of the draw.
"""


class SeededDraw:
    """Inverse CDF over counter-based uniform numbers: a pure function of (seed, sentence, step,
    draw).
    """

    def __init__(self, seed: int, sentence: int) -> None:
        self.seed, self.sentence = seed, sentence

    def __call__(self, weights: NDArray[np.float64], step: int, draw: int) -> int:
        return inverse_cdf(weights, philox.uniform(self.seed, self.sentence, step, draw))


class RepetitionAwareChooser:
    """Repetition-aware sampling with the random numbers of `draw`. Source: compatibility
    specification section 3.3; VALL-E 2 (Chen et al., 2024).
    """

    def __init__(self, parameters: SamplingParameters, draw: Draw) -> None:
        self.parameters, self.draw = parameters, draw

    def choose(self, scores: Scores, decisions: Sequence[int]) -> int:
        """As `Chooser.choose`: draw 0 in the nucleus, and draw 1 among all other ids when that id
        fills too much of the window.
        """
        limits, step = self.parameters, len(decisions)
        ids, probabilities = nucleus(scores, limits.top_p, limits.top_k)
        chosen = int(ids[self.draw(probabilities, step, 0)])
        if decisions[-limits.win_size :].count(chosen) >= limits.win_size * limits.tau_r:
            weights, _ = _weights(scores)
            weights[chosen] = 0.0
            chosen = self.draw(weights, step, 1)
        return chosen


class GreedyChooser:
    """Always the most probable id, the lowest among equals."""

    def choose(self, scores: Scores, decisions: Sequence[int]) -> int:
        """As `Chooser.choose`; `decisions` is not used."""
        return int(np.argmax(scores))


def nucleus(scores: Scores, top_p: float, top_k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ids and probabilities [n] (not renormalised) of the candidates in `scores` [ids], most
    probable first; n is 1 to top_k.
    """
    weights, possible = _weights(scores)
    size = min(top_k, len(possible))
    possible_scores = scores[possible]
    smallest = np.partition(possible_scores, -size)[-size]
    # In id order; all ids that tie for the last place are included, and the sort keeps that order.
    candidates = possible[possible_scores >= smallest]
    candidates = candidates[np.argsort(-scores[candidates], kind="stable")][:size]
    probabilities = weights[candidates] / weights.sum()
    before = np.concatenate(([0.0], np.cumsum(probabilities)[:-1]))
    accepted = int(np.count_nonzero((before < top_p) & (probabilities > 0.0)))
    return candidates[:accepted], probabilities[:accepted]


def inverse_cdf(weights: NDArray[np.float64], uniform: float) -> int:
    """Index of the first weight whose running sum exceeds uniform * total; 0 <= uniform < 1. Never
    an index of weight 0.
    """
    sums = np.cumsum(weights)
    index = int(np.searchsorted(sums, uniform * sums[-1], side="right"))
    return index if index < len(sums) else int(np.flatnonzero(weights)[-1])


def mask(scores: Scores, ids: Sequence[int]) -> Scores:
    """A copy of the log-probabilities in which `ids` cannot be chosen."""
    masked = scores.copy()
    masked[list(ids)] = -np.inf
    return masked


def _weights(scores: Scores) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The weights, and the ids, in order, whose weight may be above 0."""
    wide = scores.astype(np.float64)
    wide -= wide.max()
    # Skips ids whose weight is 0: where most ids cannot be chosen, exp would take longer than all
    # the rest.
    possible = np.flatnonzero(wide > _VANISHES)
    weights = np.zeros(len(wide))
    weights[possible] = np.exp(wide[possible])
    return weights, possible
