"""Hops are counted in spoken tokens: the decoder gets what it needs for its first sound in the
first hop, however much silence the model generates before it.
"""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.generations.generation import SilentRuns, SilentTokens
from services.llm.generation.outbox import Outbox
from services.llm.generation.request import FinishReason, Grouping, Hop

SILENT = SilentTokens(ids=frozenset({0}), longest_run=2)
FIRST, REST = 3, 4


def hops_of(tokens: list[int], replay: tuple[int, ...] = (), silent: SilentTokens | None = SILENT) -> list[list[int]]:
    """The tokens of each hop but the last, which has the outcome and what is left."""
    hops: list[Hop] = []
    outbox = Outbox(hops.append, Grouping(first=FIRST, rest=REST, silent=silent), replay)
    for token in tokens:
        outbox.add(token, last=False)
    outbox.finish(FinishReason.END_OF_SPEECH, len(tokens))
    return [hop.tokens for hop in hops]


def spoken_of(tokens: list[int]) -> int:
    runs = SilentRuns(SILENT)
    runs.extend(tokens)
    return len(runs.spoken)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        # Two of the five silent tokens are spoken, and the 7 is the third token that is.
        ([0, 0, 0, 0, 0, 7, 8], [[0, 0, 0, 0, 0, 7], [8]]),
        ([7, 8, 9, 7, 8, 9, 7, 8], [[7, 8, 9], [7, 8, 9, 7], [8]]),
        # After four tokens that are left out a hop goes without the third that is spoken, and the
        # hop after it is that one token, so that the borders stay where the decoder has them.
        ([0] * 6 + [0, 7, 8, 9, 7, 8, 9], [[0] * 6, [0, 7], [8, 9, 7, 8], [9]]),
    ],
)
def test_silence_that_is_left_out_fills_no_hop(tokens: list[int], expected: list[list[int]]) -> None:
    assert hops_of(tokens) == expected


def test_a_silence_goes_on_behind_what_is_replayed() -> None:
    assert hops_of([0, 0, 7, 8, 9, 1], replay=(5, 0, 0)) == [[0, 0, 7, 8, 9], [1]]


def test_a_model_without_silent_tokens_counts_all() -> None:
    assert hops_of([0] * 8, silent=None) == [[0] * 3, [0] * 4, [0]]


@given(st.lists(st.sampled_from([0, 0, 0, 7, 8]), max_size=60))
def test_the_borders_are_those_of_the_decoder_for_any_tokens(tokens: list[int]) -> None:
    *full, last = hops_of(tokens)
    assert [token for hop in (*full, last) for token in hop] == tokens
    reached = {spoken_of([token for hop in full[: count + 1] for token in hop]) for count in range(len(full))}
    borders = {count for count in accumulate([FIRST, *[REST] * 20]) if count <= spoken_of(tokens)}
    assert borders <= reached
    # A reader is told at least so often that the model is at work.
    assert all(len(hop) < FIRST + REST + REST for hop in full)
