"""A frontend that pauses costs its callers little: another one reads the text, and the pausing call
is hung up on.
"""

import asyncio
from typing import Any

import grpc
import pytest

from tests.pipeline.calling import speak, spoken
from tests.stacks.calls import until
from tests.stacks.scripted_stages import Stack


@pytest.mark.start(replicas={"frontend": 2}, hedge_share=0.1, stall_seconds=30.0)
async def test_a_text_is_read_by_another_frontend_when_one_pauses(running: Stack) -> None:
    for number in range(25):
        await speak(running, f"word{number}")
    pausing, other = running.scripts["frontend"]
    # The first one was idle each time; on a busy machine it may have paused once.
    before = other.calls.count("analyze")
    assert before <= 1
    hung_up: list[bool] = []

    async def pause(context: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            hung_up.append(True)
            raise

    pausing.analyze = pause
    assert (await spoken(running, "two words"))[-1].summary.resumptions == 0
    assert other.calls.count("analyze") == before + 1
    await until(lambda: hung_up == [True])


@pytest.mark.start(replicas={"frontend": 2}, hedge_share=0.1, stall_seconds=30.0)
async def test_a_frontend_that_is_lost_after_it_answered_first_is_the_one_to_blame(
    running: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    """The other one, with which the call was begun, goes on being called."""
    for number in range(25):
        await speak(running, f"word{number}")
    pausing, other = running.scripts["frontend"]
    answered: list[int] = []

    async def pause(context: Any) -> None:
        if not answered:
            await asyncio.Event().wait()

    async def go(context: Any) -> None:
        answered.append(1)
        if len(answered) == 2:
            await asyncio.sleep(0.05)  # a status must not overtake what was written
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    pausing.analyze, other.analyze = pause, go
    caplog.clear()
    assert (await spoken(running, "two words"))[-1].summary.resumptions == 1
    assert (pausing.calls.count("analyze"), other.calls.count("analyze")) == (27, 1)
    blamed = [record.getMessage() for record in caplog.records if "frontend at" in record.getMessage()]
    ports = [str(replica.port) for replica in running.services["frontend"]]
    assert any(ports[1] in line for line in blamed)
    assert not any(ports[0] in line for line in blamed)


@pytest.mark.start(replicas={"frontend": 2}, hedge_share=0.0, stall_seconds=1.0)
async def test_without_hedging_it_is_waited_for_until_it_counts_as_dead(running: Stack) -> None:
    for number in range(25):
        await speak(running, f"word{number}")
    pausing, _ = running.scripts["frontend"]

    async def pause(context: Any) -> None:
        await asyncio.Event().wait()

    pausing.analyze = pause
    assert (await spoken(running, "two words"))[-1].summary.resumptions == 1
