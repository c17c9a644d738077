"""What speech costs the stages, as they report it over real connections: also when one has no time
to answer, or reports what cannot be.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from cosyserve.engines.engine_load import Load
from cosyserve.rpc.replicas import Replica
from cosyserve.v1 import identity_pb2, info_pb2, info_pb2_grpc
from services.orchestrator.load_control.adaptive_limit import AdaptiveLimit
from services.orchestrator.stages import info as stage_info
from services.orchestrator.stages.info import StageInfo
from tests.stacks.scripted_server import listening


class Telling(info_pb2_grpc.InfoServiceServicer):
    """One replica. factor: what it reports, None: nothing. silent: it does not answer."""

    def __init__(self, factor: float | None, device: str = "cpu", backend: str = "torch", **limits: float) -> None:
        self.factor, self.silent, self.device, self.backend = factor, False, device, backend
        self._limits = limits

    async def GetInfo(self, request: Any, context: Any) -> Any:
        if self.silent:
            await asyncio.Event().wait()
        load = None if self.factor is None else info_pb2.EngineLoad(real_time_factor=self.factor, pieces=5)
        identity = identity_pb2.EngineIdentity(device=self.device, backend=self.backend)
        return info_pb2.GetInfoResponse(info=info_pb2.ServiceInfo(identity=identity, load=load, limits=self._limits))


@contextlib.asynccontextmanager
async def stage(*tellers: Telling) -> AsyncIterator[tuple[StageInfo, list[Replica]]]:
    """One stage of these replicas, which all serve as long as they are in the list."""
    async with contextlib.AsyncExitStack() as exits:
        replicas = []
        for teller in tellers:
            target = await exits.enter_async_context(listening(info_pb2_grpc.add_InfoServiceServicer_to_server, teller))
            replicas.append(Replica(target, await exits.enter_async_context(grpc.aio.insecure_channel(target))))
        found: Any = SimpleNamespace(stage="token2wav", serving_replicas=lambda: list(replicas))
        yield StageInfo([found]), replicas


async def factors(info: StageInfo) -> list[float | None]:
    return [one.load and one.load.real_time_factor for one in await info.loads(everywhere=False)]


async def test_streams_of_a_gpu_share_steps_unless_its_cost_is_to_count_and_fakes_have_no_load() -> None:
    async with stage(Telling(0.4), Telling(0.1, "cuda"), Telling(0.1, backend="fake")) as (info, _):
        assert [(one.load, one.shares_steps) for one in await info.loads(everywhere=False)] == [
            (Load(0.4, 5, 0), False),
            (Load(0.1, 5, 0), True),
        ]
        assert [one.shares_steps for one in await info.loads(everywhere=True)] == [False, False, False]


async def test_streams_of_a_gpu_do_not_share_steps_that_take_one_of_them() -> None:
    tellers = [Telling(0.1, "cuda", **limits) for limits in ({"widest_step": 1}, {"max_sequences": 1}, {"threads": 1})]
    async with stage(*tellers) as (info, _):
        assert [one.shares_steps for one in await info.loads(everywhere=False)] == [False, False, True]


async def test_a_replica_that_has_no_time_to_answer_costs_what_it_said_last_while_it_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stage_info, "ANSWER_SECONDS", 0.5)
    one, other = Telling(0.4), Telling(0.2)
    async with stage(one, other) as (info, replicas):
        limit = AdaptiveLimit(16)
        assert limit.of(await info.loads(everywhere=False), 4, 0.0) == 6
        one.silent = other.silent = True
        loads = await info.loads(everywhere=False)
        assert [each.load for each in loads] == [Load(0.4, 5), Load(0.2, 5)]
        assert limit.of(loads, 4, 1.0) == 6
        one.silent = False
        one.factor = 0.8
        assert await factors(info) == [0.8, 0.2]
        one.silent = True
        del replicas[0]
        assert await factors(info) == [0.2]


async def test_it_does_so_for_some_rounds_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_info, "ANSWER_SECONDS", 0.02)
    assert stage_info.MOST_SILENT_ROUNDS > 3
    monkeypatch.setattr(stage_info, "MOST_SILENT_ROUNDS", 3)
    teller = Telling(0.4)
    async with stage(teller) as (info, _):
        while not await factors(info):
            pass
        teller.silent = True
        assert [await factors(info) for _ in range(4)] == [[0.4]] * 3 + [[]]


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf, None])
async def test_a_cost_that_cannot_be_is_not_reported(factor: float | None) -> None:
    async with stage(Telling(factor), Telling(0.2)) as (info, _):
        assert await factors(info) == [None, 0.2]
