"""Buckets, budgets and parts of limits, on a clock of their own."""

import asyncio

import pytest

from cosyserve.errors import LimitReached, Overloaded
from cosyserve.keys.key_record import KeyLimits
from services.orchestrator.access.budget import Budget, TokenBucket
from services.orchestrator.access.callers import LimitParts
from tests.stacks.virtual_time import Clock


def test_a_bucket_gives_a_period_at_once_and_then_its_rate() -> None:
    clock = Clock(1_000.0)
    bucket = TokenBucket(60, clock)
    assert bucket.wait(10, 10) == 0
    bucket.take(10, 10)
    assert bucket.wait(1, 10) == pytest.approx(6)
    clock.now += 6
    assert bucket.wait(1, 10) == pytest.approx(0)
    clock.now += 1_000
    assert bucket.full


def test_over_a_long_time_no_more_than_the_limit_is_taken() -> None:
    """An amount above the capacity needs a full bucket and leaves a debt."""
    clock, taken = Clock(1_000.0), 0
    bucket = TokenBucket(60, clock)
    for second in range(3_600):
        amount = (1, 7, 45)[second % 3]
        if bucket.wait(amount, 30) == 0:
            bucket.take(amount, 30)
            taken += amount
        clock.now += 1
    assert 30 * 55 <= taken <= 30 * 60 + 30 + 45


def budget(clock: Clock, parts: int = 1, **limits: int) -> Budget:
    return Budget("alice", KeyLimits(**limits), lambda: parts, clock)


def test_each_limit_is_named_with_the_time_to_come_back() -> None:
    clock = Clock(1_000.0)
    limited = budget(clock, requests_per_minute=2)
    for _ in range(2):
        with limited.use():
            pass
    with pytest.raises(LimitReached, match=r"key alice .* 2 requests a minute .* in 30\.0 s") as caught, limited.use():
        pass
    assert caught.value.retry_after == pytest.approx(30)
    clock.now += 30
    with limited.use():
        pass

    limited = budget(clock, characters_per_minute=100, characters_per_day=120)
    with limited.use(100):
        pass
    with pytest.raises(LimitReached, match="100 characters a minute"), limited.use(50):
        pass
    clock.now += 60
    with pytest.raises(LimitReached, match="120 characters a day") as caught, limited.use(50):
        pass
    assert caught.value.retry_after == pytest.approx(86_400 * 30 / 120 - 60)


def test_requests_at_once() -> None:
    limited = budget(Clock(1_000.0), concurrent=2)
    with limited.use(), limited.use():
        with pytest.raises(LimitReached, match="2 of 2 requests at once"), limited.use():
            pass
        assert limited.active == 2
    assert limited.active == 0
    with limited.use():
        pass


def test_a_request_that_was_refused_for_want_of_a_place_counts_for_nothing() -> None:
    limited = budget(Clock(1_000.0), requests_per_minute=1, characters_per_minute=10)
    for _ in range(5):
        with pytest.raises(Overloaded), limited.use(10):
            raise Overloaded("full")
    with limited.use(10):
        pass


def test_text_that_arrives_is_spoken_and_waited_for_afterwards() -> None:
    clock = Clock(1_000.0)
    limited = budget(clock, characters_per_minute=100)
    with limited.use():
        for _ in range(30):
            limited.charge(10)
    with pytest.raises(LimitReached) as caught, limited.use():
        pass
    assert caught.value.retry_after == pytest.approx(120.6)
    clock.now += 121
    with limited.use():
        pass


def test_parts_share_a_limit_and_the_message_says_so() -> None:
    limited = budget(Clock(1_000.0), 4, requests_per_minute=8, concurrent=2)
    for _ in range(2):
        reached = pytest.raises(LimitReached, match="1 of 1 requests at once in this part of 4")
        with limited.use(), reached, limited.use():
            pass
    with pytest.raises(LimitReached, match="the 2 requests a minute"), limited.use():
        pass


def test_a_budget_that_matters_is_not_unused() -> None:
    clock = Clock(1_000.0)
    limited = budget(clock, requests_per_minute=1)
    assert limited.unused
    with limited.use():
        assert not limited.unused
    assert not limited.unused
    clock.now += 61
    assert limited.unused


async def test_the_parts_are_the_addresses_of_a_name() -> None:
    clock, found = Clock(1_000.0), [3]
    asked = []

    async def resolve(name: str) -> int:
        asked.append(name)
        if not found:
            raise OSError("no such name")
        return found[0]

    parts = LimitParts(1, "orchestrators", resolve, clock)
    await parts.refresh()
    assert parts.count == 3
    found[0] = 5
    await parts.refresh()
    assert (parts.count, len(asked)) == (3, 1)
    clock.now += 11
    await parts.refresh()
    await asyncio.sleep(0.01)
    assert parts.count == 5
    found.clear()
    clock.now += 11
    await parts.refresh()
    await asyncio.sleep(0.01)
    assert parts.count == 5
    plain = LimitParts(2)
    await plain.refresh()
    assert plain.count == 2
