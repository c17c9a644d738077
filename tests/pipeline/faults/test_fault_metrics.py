"""The gauges and counters follow what happens to the requests of a stack."""

import asyncio
import weakref
from collections import Counter
from typing import Any

import grpc
import pytest
from opentelemetry.metrics import CallbackOptions

from cosyserve.metrics import names
from cosyserve.metrics.instruments import counter, gauge
from cosyserve.v1 import synthesis_pb2
from tests.pipeline.calling import hold_back, hook, speak
from tests.stacks.calls import refusal, until
from tests.stacks.scripted_stages import Stack


@pytest.fixture(autouse=True)
def _only_what_this_test_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the stacks of other tests something may still be there."""
    for metric in (names.BREAKER_OPEN, names.RETRY_BUDGET, names.BROWNOUT_ACTIVE):
        monkeypatch.setattr(gauge(metric), "_owners", weakref.WeakKeyDictionary())


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, ...]]:
    """How often each counter was raised, by name and labels."""
    counts: Counter[tuple[str, ...]] = Counter()
    for name in ("RETRIES_REFUSED", "HEDGES", "DEADLINE_DROPPED", "QUARANTINED"):

        def add(amount: float = 1, *, name: str = name, **labels: str) -> None:
            counts[(name, *labels.values())] += int(amount)

        monkeypatch.setattr(counter(getattr(names, name)), "add", add)
    return counts


def reading(metric: names.Metric, **labels: str) -> list[float]:
    return [one.value for one in gauge(metric)._observe(CallbackOptions()) if dict(one.attributes or {}) == labels]


async def lose(context: Any, sent: int) -> None:
    await asyncio.sleep(0.05)
    await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")


async def fail(context: Any, sent: int) -> None:
    await context.abort(grpc.StatusCode.INTERNAL, "a pass failed")


@pytest.mark.start(replicas={"llm": 2}, breaker_failures=2, breaker_seconds=30.0)
async def test_an_open_breaker_is_seen(running: Stack) -> None:
    assert reading(names.BREAKER_OPEN, stage="llm") == [0]
    running.scripts["llm"][0].generate = fail
    for number in range(3):
        await asyncio.gather(speak(running, f"word{number}"), return_exceptions=True)
    assert reading(names.BREAKER_OPEN, stage="llm") == [1]


@pytest.mark.start(replicas={"llm": 3}, retry_share=0.0, retries_per_second=0.2, stall_seconds=10.0)
async def test_lost_engines_use_the_budget_and_lead_to_quarantine(
    running: Stack, counted: Counter[tuple[str, ...]]
) -> None:
    hook(running, "llm", lose)
    await refusal(speak(running, "poison"), grpc.StatusCode.FAILED_PRECONDITION)
    (left,) = reading(names.RETRY_BUDGET, stage="llm")
    assert left == pytest.approx(0.5)  # two of the floor and two of the lost replicas, two used
    await refusal(speak(running, "poison"), grpc.StatusCode.FAILED_PRECONDITION)
    assert counted == {("QUARANTINED", "placed"): 1, ("QUARANTINED", "refused"): 2}


@pytest.mark.start(max_streams=2, brownout_share=0.5)
async def test_requests_that_began_near_the_limit_are_seen_while_they_are_under_way(running: Stack) -> None:
    gate = hold_back(running)
    speaking = []
    for number, browned_out in enumerate((0, 1)):
        speaking.append(asyncio.create_task(speak(running, f"word{number}")))
        await until(lambda: running.scripts["token2wav"][0].active == len(speaking))
        assert reading(names.BROWNOUT_ACTIVE) == [browned_out]
    gate.set()
    await asyncio.gather(*speaking)
    assert reading(names.BROWNOUT_ACTIVE) == [0]


async def test_what_is_dropped_at_its_deadline_is_counted_in_every_service(
    running: Stack, counted: Counter[tuple[str, ...]]
) -> None:
    hold_back(running)
    while not counted[("DEADLINE_DROPPED", "call")]:  # on a busy machine a call ends before it arrives
        await refusal(speak_within(running, 0.4), grpc.StatusCode.DEADLINE_EXCEEDED)


async def speak_within(running: Stack, seconds: float) -> list[Any]:
    call = running.stub.Synthesize(synthesis_pb2.SynthesizeRequest(text="word"), timeout=seconds)
    return [response async for response in call]
