"""A caller's deadline travels to the stages, and a request without the time for a first sound
begins nothing.
"""

import asyncio
from typing import Any

import grpc
import pytest

from cosyserve.errors import CallersDeadline
from cosyserve.v1 import synthesis_pb2
from tests.pipeline.calling import hook, speak, spoken
from tests.stacks.calls import all_of, refusal
from tests.stacks.scripted_stages import Stack


def within(running: Stack, seconds: float | None, text: str = "word") -> Any:
    return all_of(running.stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=text), timeout=seconds))


@pytest.mark.parametrize("stage_name", ["frontend", "llm", "token2wav"])
async def test_a_deadline_travels_to_every_stage(running: Stack, stage_name: str) -> None:
    seen: list[float] = []

    async def look(context: Any, *_: Any) -> None:
        seen.append(context.time_remaining())

    hook(running, stage_name, look)
    await within(running, 15.0)
    assert seen
    assert all(5.0 < left < 15.5 for left in seen)


@pytest.mark.start(max_request_seconds=12.0)
async def test_without_one_the_servers_own_limit_travels(running: Stack) -> None:
    seen: list[float] = []

    async def look(context: Any, *_: Any) -> None:
        seen.append(context.time_remaining())

    hook(running, "llm", look)
    await within(running, None)
    assert all(3.0 < left < 12.5 for left in seen)


async def test_a_request_that_has_no_time_for_a_first_sound_begins_nothing(running: Stack) -> None:
    async def slow(context: Any, sent: int) -> None:
        await asyncio.sleep(0.3)

    hook(running, "token2wav", slow)
    for _ in range(2):
        await speak(running, "x")
    before = running.scripts["frontend"][0].calls.count("analyze")
    error = await refusal(within(running, 0.1), grpc.StatusCode.DEADLINE_EXCEEDED)
    assert error is not None
    await asyncio.sleep(0.3)
    assert running.scripts["frontend"][0].calls.count("analyze") == before


@pytest.mark.parametrize("stage_name", ["llm", "token2wav"])
@pytest.mark.start(replicas={"llm": 2, "token2wav": 2}, breaker_failures=2, breaker_seconds=30.0)
async def test_a_stage_that_drops_work_for_its_deadline_is_not_taken_for_a_dead_one(
    running: Stack, stage_name: str
) -> None:
    """It may do so before the orchestrator sees the deadline pass. The work is tried nowhere else,
    and callers in a hurry open no breaker for the others.
    """
    dropped: list[str] = []

    async def drop(context: Any, *_: Any) -> None:
        dropped.append(stage_name)
        # Tokens that are written while a call ends would hide its status (grpc.aio).
        await asyncio.sleep(0.2)
        raise CallersDeadline("the sentence was not begun in time for its caller")

    hook(running, stage_name, drop)
    for _ in range(8):
        await refusal(within(running, 15.0), grpc.StatusCode.DEADLINE_EXCEEDED, "not begun in time")
    assert len(dropped) == 8
    hook(running, stage_name, None)
    await spoken(running)
