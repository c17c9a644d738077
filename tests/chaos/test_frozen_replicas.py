"""A process that is stopped (SIGSTOP) holds its connections open and answers nothing. The
orchestrator notices it within eight seconds.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cosyserve.client import AsyncClient
from tests.chaos.frozen import NOTICED_SECONDS, Watched, half_written, rest_of, short, undisturbed, watched

pytestmark = pytest.mark.asyncio(loop_scope="module")
STAGES = ("frontend", "llm", "token2wav")
_ANSWERED_SECONDS = 4.0
"""Of a request that meets no frozen replica, on a busy machine; one that does takes until the
replica is given up.
"""
CALLERS = range(3)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Watched]:
    async with watched() as stack_and_roster:
        yield stack_and_roster


def seconds() -> float:
    return asyncio.get_running_loop().time()


async def check_idle(running: Watched, stage: str) -> None:
    await running.complete()
    async with AsyncClient(running.stack.address) as client:
        async with running.frozen(stage):
            begin = seconds()
            await running.roster.lost(stage)
            assert seconds() - begin < NOTICED_SECONDS
            for _ in range(4):
                assert await short(client) < _ANSWERED_SECONDS
        await running.roster.returned(stage)
        async with running.frozen(stage, 1):
            # Only the replica that had been frozen is left, and it is used as soon as the other one
            # is given up.
            await running.roster.lost(stage)
            assert await short(client) < _ANSWERED_SECONDS
        await running.roster.returned(stage)


async def check_under_load(running: Watched, stage: str) -> None:
    await running.complete()
    async with AsyncClient(running.stack.address) as client:
        expected = await undisturbed(client, CALLERS)
        speeches = [await half_written(client, seed) for seed in CALLERS]
        async with running.frozen(stage):
            begin = seconds()
            hearing = [asyncio.create_task(rest_of(speech)) for speech in speeches]
            await running.roster.lost(stage)
            assert seconds() - begin < NOTICED_SECONDS
            heard = await asyncio.gather(*hearing)
            assert seconds() - begin < NOTICED_SECONDS + _ANSWERED_SECONDS
        assert heard == expected
        assert sum(speech.summary.resumptions for speech in speeches if speech.summary is not None) > 0
        await running.roster.returned(stage)


async def test_a_frozen_decoder_under_load(running: Watched) -> None:
    await check_under_load(running, "token2wav")


@pytest.mark.chaos
@pytest.mark.parametrize("stage", ["frontend", "llm"])
async def test_any_other_frozen_stage_under_load(running: Watched, stage: str) -> None:
    await check_under_load(running, stage)


@pytest.mark.chaos
@pytest.mark.parametrize("stage", STAGES)
async def test_a_frozen_stage_without_load(running: Watched, stage: str) -> None:
    await check_idle(running, stage)
