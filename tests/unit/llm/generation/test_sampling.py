"""The sampler's rules: which ids are in the nucleus, what a draw chooses, when an id is drawn
again.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from services.llm.generation.config import SamplingParameters
from services.llm.generation.sampling import (
    GreedyChooser,
    RepetitionAwareChooser,
    SeededDraw,
    inverse_cdf,
    mask,
    nucleus,
)

RAS = SamplingParameters()


def log(*probabilities: float) -> NDArray[np.float32]:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities, np.float32))


class Recorder:
    """Draws a fixed place and keeps what it was asked."""

    def __init__(self, *places: int) -> None:
        self.places, self.asked = list(places), []

    def __call__(self, weights: NDArray[np.float64], step: int, draw: int) -> int:
        self.asked.append((weights.copy(), step, draw))
        return self.places.pop(0)


def test_equal_items_go_by_id_and_masked_ones_are_out() -> None:
    assert nucleus(mask(log(0.3, 0.2, 0.3, 0.2), [0]), 1.0, 25)[0].tolist() == [2, 1, 3]


@given(st.lists(st.integers(-40, 0), min_size=2, max_size=80), st.floats(0.05, 0.999), st.integers(1, 30))
def test_the_partial_sort_equals_the_full_walk(tenths: list[int], top_p: float, top_k: int) -> None:
    scores = np.array(tenths, np.float32) / 10
    share = np.exp(scores.astype(np.float64) - scores.max().astype(np.float64))
    share /= share.sum()
    walked, total = [], 0.0
    for item in sorted(range(len(scores)), key=lambda item: (-scores[item], item)):
        if total < top_p and len(walked) < top_k:
            walked.append(item)
            total += share[item]
    assert nucleus(scores, top_p, top_k)[0].tolist() == walked


@pytest.mark.parametrize(("uniform", "chosen"), [(0.0, 1), (0.2499, 1), (0.25, 3), (0.999, 3)])
def test_a_draw_is_the_first_whose_running_sum_exceeds(uniform: float, chosen: int) -> None:
    assert inverse_cdf(np.array([0.0, 0.5, 0.0, 1.5, 0.0]), uniform) == chosen


def test_a_draw_never_leaves_the_weights() -> None:
    for weights, drawn in (([0.1] * 10 + [0.0, 0.0], {9}), ([3.0, 1e-300, 0.0], {0, 1})):
        assert inverse_cdf(np.array(weights), np.nextafter(1.0, 0.0)) in drawn


def test_draws_are_a_function_of_seed_sentence_step_and_number() -> None:
    places = [(7, 2, 5, 0), (8, 2, 5, 0), (7, 3, 5, 0), (7, 2, 6, 0), (7, 2, 5, 1)]
    once, again = (
        [SeededDraw(seed, sentence)(np.ones(1000), step, draw) for seed, sentence, step, draw in places]
        for _ in range(2)
    )
    assert once == again
    assert len(set(once)) == 5


def test_draws_follow_the_weights() -> None:
    draw = SeededDraw(1, 0)
    assert sum(draw(np.array([1.0, 3.0]), step, 0) for step in range(2000)) == pytest.approx(1500, abs=80)


@pytest.mark.parametrize("far", [-700.0, -744.4, -745.2, -746.0, -1e4, -np.inf])
def test_ids_far_below_are_weighed_as_all_others(far: float) -> None:
    """Every weight is exp of the distance to the greatest, to the bit, whether it is worked out or
    known to be 0.
    """
    scores = np.random.default_rng(2).normal(-7.0, 2.0, 600).astype(np.float32)
    scores[50:400] = scores[450] = far
    draw = Recorder(0, 10)
    chosen = int(np.argmax(scores))
    RepetitionAwareChooser(SamplingParameters(tau_r=0.1), draw).choose(scores, [chosen])
    wide = scores.astype(np.float64)
    weights = np.exp(wide - wide.max())
    assert draw.asked[0][0].tolist() == np.sort(weights / weights.sum())[::-1][: len(draw.asked[0][0])].tolist()
    weights[chosen] = 0.0
    assert np.array_equal(draw.asked[1][0], weights)


def test_a_fresh_id_takes_one_draw() -> None:
    draw = Recorder(0)
    assert RepetitionAwareChooser(RAS, draw).choose(log(0.1, 0.9), [1] + [0] * 10) == 1
    assert [(step, number) for _, step, number in draw.asked] == [(11, 0)]


def test_an_id_of_the_last_ten_is_drawn_again_among_all_others() -> None:
    draw = Recorder(0, 2)
    assert RepetitionAwareChooser(RAS, draw).choose(log(0.85, 0.05, 0.1), [0] + [1] * 9) == 2
    (_, step, first), (weights, again, second) = draw.asked
    assert (step, first, again, second) == (10, 0, 10, 1)
    assert weights / weights.sum() == pytest.approx([0.0, 1 / 3, 2 / 3])


def test_a_wider_threshold_tolerates_repeats() -> None:
    chooser = RepetitionAwareChooser(SamplingParameters(tau_r=0.3), Recorder(0))
    assert chooser.choose(log(0.9, 0.1), [0, 0] + [1] * 8) == 0


def test_masking_leaves_the_original_alone() -> None:
    scores = log(0.5, 0.5)
    assert np.isneginf(mask(scores, [1])[1])
    assert np.isfinite(scores).all()
    assert GreedyChooser().choose(mask(scores, [0]), []) == 1
