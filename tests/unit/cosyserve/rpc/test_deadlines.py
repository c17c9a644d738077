"""The deadline of a call, where it is answered and where it is passed on."""

import asyncio
import time
from typing import Any

import pytest

from cosyserve.errors import CallersDeadline
from cosyserve.rpc.deadlines import ShortestTime, callers_deadline, deadline, for_stage, remaining, require_time, until


class Context:
    """Of a call with so many seconds left; gRPC itself does nothing about it."""

    def __init__(self, seconds: float | None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds

    def time_remaining(self) -> float | None:
        return None if self._until is None else max(self._until - time.monotonic(), 0.0)


async def test_work_ends_at_the_deadline_although_no_caller_hangs_up() -> None:
    seen: list[float | None] = []

    async def work() -> None:
        context: Any = Context(0.05)
        async with callers_deadline(context):
            seen.append(remaining())
            await asyncio.sleep(20)
            seen.append(None)

    with pytest.raises(CallersDeadline):
        await work()
    assert len(seen) == 1
    assert 0 < (seen[0] or 0) <= 0.05
    assert remaining() is None


async def test_work_that_comes_too_late_does_not_begin() -> None:
    context: Any = Context(0.0)
    with pytest.raises(CallersDeadline):
        async with callers_deadline(context):
            pytest.fail("it began")


async def test_without_a_deadline_nothing_is_limited() -> None:
    context: Any = Context(None)
    async with callers_deadline(context):
        assert (remaining(), until(), for_stage()) == (None, None, None)
        require_time()


async def test_a_timeout_of_the_work_itself_is_not_the_callers() -> None:
    context: Any = Context(20.0)
    with pytest.raises(TimeoutError, match="of the work"):
        async with callers_deadline(context):
            raise TimeoutError("of the work")


async def test_tasks_have_the_deadline_of_their_call_and_calls_each_their_own() -> None:
    async def passed_on() -> float:
        await asyncio.sleep(0)
        return for_stage() or 0.0

    async def call(seconds: float) -> float:
        with deadline(seconds):
            return await asyncio.create_task(passed_on())

    short, long = await asyncio.gather(call(10.0), call(100.0))
    assert 9.0 < short < 10.2
    assert 99.0 < long < 100.2


def test_a_call_with_less_than_half_of_the_shortest_time_is_dropped() -> None:
    shortest = ShortestTime()
    with deadline(0.001):
        shortest.require("here")  # nothing is known yet
    for seconds in (3.0, 1.0, 2.0):
        shortest.took(seconds)
    for left in (None, 0.6, 50.0):
        with deadline(left):
            shortest.require("here")
    with deadline(0.4), pytest.raises(CallersDeadline, match=r"the fastest took 1.000 s") as caught:
        shortest.require("here")
    assert caught.value.queue == "here"


def test_only_the_latest_times_count() -> None:
    shortest = ShortestTime()
    shortest.took(0.01)
    for _ in range(64):
        shortest.took(5.0)
    with deadline(2.0), pytest.raises(CallersDeadline):
        shortest.require("here")
