"""Estimates of steps are kept until the next step is recorded, and are those of a fresh count."""

import random

import pytest

from services.token2wav.scheduling.measurements import StepCosts, TokenPace

SIZES = range(40)


def estimates(costs: StepCosts) -> list[float]:
    return [*map(costs.typical, SIZES), *map(costs.slow, SIZES), costs.two_more]


@pytest.mark.parametrize("seed", range(5))
def test_estimates_that_were_asked_for_before_are_those_of_a_count_that_was_not(seed: int) -> None:
    rng, asked, steps = random.Random(seed), StepCosts(), list[tuple[int, float]]()
    for _ in range(60):
        steps.append((rng.choice((1, 2, 3, 7, 8, 20, 33)), rng.uniform(0.001, 0.1)))
        asked.add(*steps[-1])
        fresh = StepCosts()
        for step in steps:
            fresh.add(*step)
        assert estimates(asked) == estimates(asked) == estimates(fresh)


def test_the_first_step_replaces_the_nothing_of_before() -> None:
    costs = StepCosts()
    assert estimates(costs) == [0.0] * (2 * len(SIZES) + 1)
    costs.add(4, 0.02)
    assert (costs.typical(4), costs.slow(8), costs.two_more) == (0.02, 0.04, 0.04)


def test_the_pace_follows_every_message() -> None:
    pace = TokenPace()
    assert pace.expected == 0.0
    for number, expected in ((1, 0.1), (2, 0.1), (3, 0.2)):
        pace.add(10, float(number))
        assert pace.expected == expected
        assert pace.expected == expected
