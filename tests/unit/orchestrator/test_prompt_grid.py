"""What the replicas of token2wav say of their grid: of those that serve the latest counts, and one
that leaves or does not answer ends nothing.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from cosyserve.rpc.replicas import Replica
from cosyserve.v1 import info_pb2, info_pb2_grpc
from services.orchestrator.stages.prompt_grid import PromptGrid
from tests.stacks.scripted_server import listening


class Saying(info_pb2_grpc.InfoServiceServicer):
    """None: what a release without the method says."""

    def __init__(self, as_block: bool | None) -> None:
        self._as_block = as_block

    async def GetInfo(self, request: info_pb2.GetInfoRequest, context: Any) -> info_pb2.GetInfoResponse:
        if self._as_block is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such method")
        return info_pb2.GetInfoResponse(info=info_pb2.ServiceInfo(prompt_as_block=bool(self._as_block)))


class Serving:
    """As a ReplicaSet; which replicas serve is changed by the test."""

    def __init__(self) -> None:
        self.replicas: list[Replica] = []

    def serving_replicas(self) -> list[Replica]:
        return list(self.replicas)


@contextlib.asynccontextmanager
async def asking(
    *said: bool | None, setting: bool | None = None
) -> AsyncIterator[tuple[PromptGrid, Serving, list[Replica]]]:
    """A grid that asks, the replicas that serve (none yet), and those that can."""
    serving = Serving()
    grid = PromptGrid(serving, setting)  # type: ignore[arg-type]
    async with contextlib.AsyncExitStack() as exits:
        replicas = []
        for one in said:
            target = await exits.enter_async_context(
                listening(info_pb2_grpc.add_InfoServiceServicer_to_server, Saying(one))
            )
            replicas.append(Replica(target, await exits.enter_async_context(grpc.aio.insecure_channel(target))))
        task = asyncio.create_task(grid.run())
        try:
            yield grid, serving, replicas
            assert not task.done()
        finally:
            task.cancel()


async def until(grid: PromptGrid, as_block: bool) -> None:
    """Wait for an answer; TimeoutError if it does not come."""
    async with asyncio.timeout(20):
        while grid.as_block != as_block:
            await asyncio.sleep(0.01)


async def test_of_those_that_serve_the_latest_counts() -> None:
    async with asking(True, False, None) as (grid, serving, (block, start, old)):
        for replicas, expected in (([block], True), ([block, start], False), ([block], True), ([old], False)):
            serving.replicas = replicas
            grid.changed()
            await until(grid, expected)
        serving.replicas = [block]
        grid.changed()
        await until(grid, True)
        serving.replicas = []
        grid.changed()
        assert grid.as_block


async def test_one_that_has_left_its_name_ends_nothing() -> None:
    async with asking(True) as (grid, serving, (block,)):
        closed = grpc.aio.insecure_channel("127.0.0.1:1")
        await closed.close()
        serving.replicas = [Replica("gone", closed), block]
        grid.changed()
        await until(grid, True)


@pytest.mark.parametrize("setting", [False, True])
async def test_a_setting_says_more_than_they_do(setting: bool) -> None:
    serving = Serving()
    grid = PromptGrid(serving, setting)  # type: ignore[arg-type]
    await grid.run()
    grid.changed()
    assert grid.as_block is setting
