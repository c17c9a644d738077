"""The retries of a stage: a share of its successes, a floor, and those of a lost replica."""

import pytest

from cosyserve.errors import Unavailable
from services.orchestrator.faults.retry_budget import WINDOW_SECONDS, RetryBudget
from tests.stacks.virtual_time import Clock


def granted(budget: RetryBudget, wanted: int) -> int:
    return sum(budget.may_spend("it failed") for _ in range(wanted))


def test_a_stage_without_success_has_its_floor() -> None:
    assert granted(RetryBudget("llm", share=0.2, per_second=2.0, now=Clock(1000.0)), 100) == 20


def test_successes_add_their_share() -> None:
    budget = RetryBudget("llm", share=0.2, per_second=0.0, now=Clock(1000.0))
    for _ in range(50):
        budget.succeeded()
    assert granted(budget, 100) == 10


def test_a_lost_replica_adds_a_retry_for_each_of_its_calls_once_in_a_window() -> None:
    clock = Clock(1000.0)
    budget = RetryBudget("llm", share=0.0, per_second=0.0, now=clock)
    budget.lost("one", 32)
    budget.lost("one", 31)
    assert granted(budget, 100) == 32
    budget.lost("two", 5)
    assert granted(budget, 100) == 5
    clock.now += WINDOW_SECONDS + 1
    budget.lost("one", 3)
    assert granted(budget, 100) == 3


def test_the_refusal_says_when_the_next_retry_is_there() -> None:
    clock = Clock(1000.0)
    budget = RetryBudget("llm", share=0.0, per_second=0.1, now=clock)
    budget.spend("it failed")
    clock.now += 4
    with pytest.raises(
        Unavailable, match=r"llm fails too often .* \(gone\); send the request again in 6.0 s"
    ) as caught:
        budget.spend("gone")
    assert caught.value.retry_after == pytest.approx(6.0)
    clock.now += 6
    assert granted(budget, 5) == 1


def test_the_ratio_is_what_is_left() -> None:
    clock = Clock(1000.0)
    budget = RetryBudget("llm", share=0.0, per_second=1.0, now=clock)
    assert budget.ratio == 1.0
    granted(budget, 4)
    assert budget.ratio == pytest.approx(0.6)
    granted(budget, 100)
    assert budget.ratio == 0.0
    clock.now += WINDOW_SECONDS + 1
    assert budget.ratio == 1.0


def test_a_budget_without_anything_is_empty() -> None:
    assert RetryBudget("llm", share=0.0, per_second=0.0).ratio == 0.0
