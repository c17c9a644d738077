"""Detection of words that are spoken twice: the speech fits its text better when one step back in
the text is allowed.

The best monotonic path of `services.llm.guards.alignment` is compared with the best path that has a
single step back, without cost, from any text id to one a few ids before it. The gain of that step,
in natural logarithms, is large where a word is spoken once more than the text has it, since without
the step the tokens of the repetition are aligned to sounds that they do not match.

The search is exact: one forward and one backward pass over the same scores; a step back at a token
joins the best path up to it with the best path after it.
"""

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import Repeated
from services.llm.guards.alignment import MOST_SKIPPED, AlignmentTable

FEWEST_IDS = 4
"""Fewest ids that are spoken again: the three of `bye`, including its stress mark, and the
separator before the next word. Any drawn-out vowel matches fewer.
"""
LARGEST_GAIN = 20.0
"""Largest gain, in nats, that is no error. Ordinary speech was measured with up to 8; words spoken
twice with 36 to 121, except a fourth `go` after three with 10.
"""
Scores = NDArray[np.float64]


def require_no_repetition(table: AlignmentTable, text_ids: tuple[int, ...], tokens: list[int]) -> None:
    """Raises Repeated when the speech fits a text better in which some words occur twice."""
    gain = step_back_gain(table, text_ids, tokens)
    if gain > LARGEST_GAIN:
        raise Repeated(
            f"words are said twice in {len(tokens)} speech tokens: a step back in the text fits them better by "
            f"{gain:.0f} nats"
        )


def step_back_gain(table: AlignmentTable, text_ids: tuple[int, ...], tokens: list[int]) -> float:
    """The gain in natural logarithms; -inf where no path exists or the text is too short for a step
    back.
    """
    ids, states = np.asarray(text_ids, np.int64), len(text_ids)
    if states < FEWEST_IDS or len(tokens) < 2:
        return -np.inf
    scores = table.scores(ids, np.asarray(tokens, np.int64)).astype(np.float64)
    stay, leave = table.stay[ids].astype(np.float64), table.leave[ids].astype(np.float64)
    skipped = np.concatenate(([0.0], np.cumsum(table.skip[ids], dtype=np.float64)))
    # The cost of a step forward by `step` ids, of which step - 1 have no token.
    onward = [
        leave[:-step] + skipped[step:-1] - skipped[1 : states - step + 1]
        for step in range(1, min(MOST_SKIPPED + 1, states - 1) + 1)
    ]
    begin = np.where(np.arange(states) <= MOST_SKIPPED, skipped[:-1], -np.inf)
    end = np.where(np.arange(states) >= states - 1 - MOST_SKIPPED, leave + skipped[-1] - skipped[1:], -np.inf)
    before = _forward(scores, stay, onward, begin)
    plain = float((before[-1] + end).max())
    if not np.isfinite(plain):
        return -np.inf
    # The best score of the tokens from each one on: the same search in reversed order.
    reverse = _forward(scores[::-1, ::-1], stay[::-1], [cost[::-1] for cost in onward], end[::-1])
    after = reverse[::-1, ::-1]
    # For each id the best path that ends at it or later.
    ended = np.maximum.accumulate((before + leave)[:, ::-1], axis=1)[:, ::-1]
    again = ended[:-1, FEWEST_IDS - 1 :] + after[1:, : states - FEWEST_IDS + 1]
    return float(again.max()) - plain


def _forward(scores: Scores, stay: Scores, onward: list[Scores], begin: Scores) -> Scores:
    """[tokens, ids]: best score of the tokens up to and including each one, when it belongs to each
    id.
    """
    best = np.empty_like(scores)
    best[0] = begin + scores[0]
    for time in range(1, len(scores)):
        reached = best[time - 1] + stay
        for step, cost in enumerate(onward, 1):
            np.maximum(reached[step:], best[time - 1, :-step] + cost, out=reached[step:])
        best[time] = reached + scores[time]
    return best
