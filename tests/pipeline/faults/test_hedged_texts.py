"""A frontend that pauses costs its callers little: another one reads the text, and the pausing call
is hung up on.
"""

import asyncio
from typing import Any

import pytest

from tests.pipeline.calling import speak, spoken
from tests.stacks.calls import until
from tests.stacks.scripted_stages import Stack


@pytest.mark.start(replicas={"frontend": 2}, hedge_share=0.1, stall_seconds=30.0)
async def test_a_text_is_read_by_another_frontend_when_one_pauses(running: Stack) -> None:
    for number in range(25):
        await speak(running, f"word{number}")
    pausing, other = running.scripts["frontend"]
    assert other.calls.count("analyze") == 0  # the first one was idle each time
    hung_up: list[bool] = []

    async def pause(context: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            hung_up.append(True)
            raise

    pausing.analyze = pause
    async with asyncio.timeout(15):
        responses = await spoken(running, "two words")
    assert responses[-1].summary.resumptions == 0
    assert other.calls.count("analyze") == 1
    await until(lambda: hung_up == [True])


@pytest.mark.start(replicas={"frontend": 2}, hedge_share=0.0, stall_seconds=1.0)
async def test_without_hedging_it_is_waited_for_until_it_counts_as_dead(running: Stack) -> None:
    for number in range(25):
        await speak(running, f"word{number}")
    pausing, _ = running.scripts["frontend"]

    async def pause(context: Any) -> None:
        await asyncio.Event().wait()

    pausing.analyze = pause
    assert (await spoken(running, "two words"))[-1].summary.resumptions == 1
