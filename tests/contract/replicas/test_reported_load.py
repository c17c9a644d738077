"""Stages report the calls in progress to every caller, which then finds the least busy replica,
though the calls are those of another process.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from cosyserve.rpc.load import watches
from cosyserve.rpc.load.reported import Reported
from cosyserve.rpc.replicas import ReplicaSet
from cosyserve.rpc.server import Service, running
from cosyserve.v1 import info_pb2, info_pb2_grpc, llm_pb2, llm_pb2_grpc
from services.llm import __main__ as llm
from tests.stacks.calls import refused, rest, until
from tests.stacks.in_process import serving
from tests.stacks.scripted_stages import Llm, Script
from tests.unit.llm.tiny_llm import settings

REQUEST = llm_pb2.GenerateRequest(setup=llm_pb2.GenerateSetup(), text_ids=[3])


class Shared:
    """Two scripted replicas whose calls last as long as the test wants, and callers of both."""

    def __init__(self, exits: contextlib.AsyncExitStack) -> None:
        self.may_end = asyncio.Event()
        self.services: list[Service] = []
        self._exits = exits

    async def start(self) -> None:
        for _ in range(2):
            script = Script(generate=lambda *_: self.may_end.wait())
            self.services.append(await self._exits.enter_async_context(serving("llm", Llm(script))))

    async def caller(self) -> ReplicaSet:
        """Another process, as far as the replicas can tell; it knows both and their load."""
        targets = [f"127.0.0.1:{service.port}" for service in self.services]
        found = ReplicaSet("llm", "cosyserve.v1.LlmService", targets, 1 << 20, lambda: None)
        self._exits.push_async_callback(found.close)
        await until(lambda: all(replica.serving for replica in found.replicas))
        return found

    async def begin(self, caller: ReplicaSet, replica: int) -> "asyncio.Task[Any]":
        """A call of `caller` that has begun."""
        chosen = caller.replicas[replica]
        call: Any = llm_pb2_grpc.LlmServiceStub(chosen.channel).Generate(REQUEST)
        with caller.busy(chosen):
            await call.read()
        chosen.calls += 1  # until the end of the test
        return asyncio.create_task(rest(call))


@pytest.fixture
async def shared() -> AsyncIterator[Shared]:
    async with contextlib.AsyncExitStack() as exits:
        found = Shared(exits)
        await found.start()
        yield found
        found.may_end.set()


def reports(caller: ReplicaSet) -> list[Reported | None]:
    return [replica.reported for replica in caller.replicas]


async def test_a_caller_learns_of_the_calls_of_others(shared: Shared) -> None:
    one, other = await shared.caller(), await shared.caller()
    await until(lambda: [each and each.callers for each in reports(one)] == [2, 2])
    calls = [await shared.begin(one, 0) for _ in range(3)] + [await shared.begin(other, 1)]
    await until(lambda: [each and each.other_calls for each in reports(other)] == [3, 0])
    await until(lambda: [each and each.other_calls for each in reports(one)] == [0, 1])
    # With its own calls alone, it would take the first.
    assert other.pick() is other.replicas[1]
    assert one.pick() is one.replicas[1]
    shared.may_end.set()
    await asyncio.gather(*calls)
    await until(lambda: [each and each.other_calls for each in reports(other)] == [0, 0])


async def test_what_is_asked_about_a_service_is_no_load(shared: Shared) -> None:
    one = await shared.caller()
    async with grpc.aio.insecure_channel(one.replicas[0].target) as channel:
        stub: Any = info_pb2_grpc.InfoServiceStub(channel)
        await stub.GetInfo(info_pb2.GetInfoRequest())
        watch = stub.WatchLoad(info_pb2.WatchLoadRequest())
        assert (await watch.read()).other_calls == 0
        call = await shared.begin(one, 0)
        assert (await watch.read()).other_calls == 1
        shared.may_end.set()
        await call
        assert (await watch.read()).other_calls == 0
        watch.cancel()
    await until(lambda: [each and each.callers for each in reports(one)] == [1, 1])


@pytest.mark.parametrize("interval", [-1, 60_001])
async def test_an_interval_out_of_range_is_refused(shared: Shared, interval: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{shared.services[0].port}") as channel:
        stub: Any = info_pb2_grpc.InfoServiceStub(channel)
        call = stub.WatchLoad(info_pb2.WatchLoadRequest(min_interval_milliseconds=interval))
        assert await refused(call.read()) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            f"min_interval_milliseconds is {interval}, allowed are 0 to 60000",
        )


async def test_reports_are_as_far_apart_as_is_asked(shared: Shared) -> None:
    one = await shared.caller()
    clock = asyncio.get_running_loop()
    async with grpc.aio.insecure_channel(one.replicas[0].target) as channel:
        stub: Any = info_pb2_grpc.InfoServiceStub(channel)
        watch = stub.WatchLoad(info_pb2.WatchLoadRequest(min_interval_milliseconds=700))
        first, begin = await watch.read(), clock.time()
        calls = [await shared.begin(one, 0) for _ in range(5)]
        second = await watch.read()
        assert (first.other_calls, second.other_calls) == (0, 5)
        assert clock.time() - begin > 0.6
        watch.cancel()
    shared.may_end.set()
    await asyncio.gather(*calls)


async def test_a_replica_of_an_earlier_release_is_balanced_by_own_calls(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    async def unknown(self: object, request: object, context: Any) -> None:
        asked.append(request)
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    monkeypatch.setattr("cosyserve.rpc.service_info.InfoServicer.WatchLoad", unknown)
    monkeypatch.setattr(watches, "_AGAIN_SECONDS", 0.01)
    await shared.start()
    del shared.services[:2]
    one, other = await shared.caller(), await shared.caller()
    await until(lambda: len(asked) == 4)
    calls = [await shared.begin(one, 0)]
    await asyncio.sleep(0.3)
    assert len(asked) == 4, "it is asked once for each health watch"
    assert reports(one) == reports(other) == [None, None]
    assert one.pick() is one.replicas[1]
    assert other.pick() is other.replicas[0]
    shared.may_end.set()
    await asyncio.gather(*calls)


async def test_the_load_is_unknown_once_its_replica_is_gone_and_known_when_it_is_back(shared: Shared) -> None:
    one = await shared.caller()
    await until(lambda: None not in reports(one))
    one.suspect(one.replicas[0])
    await until(lambda: one.replicas[0].reported is None)
    await until(lambda: None not in reports(one))


async def test_the_real_stage_says_how_much_it_can_serve_and_leaves_though_it_is_watched() -> None:
    told = settings(backend="fake", max_sequences=7, drain_seconds=30)
    clock = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as exits:
        leaving = contextlib.AsyncExitStack()
        service = await leaving.enter_async_context(running(llm.NAME, told, llm.loader(told)))
        # The other one never comes up; one alone would not be asked.
        targets = [f"127.0.0.1:{service.port}", "127.0.0.1:1"]
        found = ReplicaSet("llm", llm.NAME, targets, 1 << 20, lambda: None)
        exits.push_async_callback(found.close)
        await until(lambda: reports(found) == [Reported(0, 7, 1, 0), None])
        begin = clock.time()
        await leaving.aclose()
        assert clock.time() - begin < 10
        await until(lambda: reports(found) == [None, None])


async def test_one_replica_alone_is_not_asked_for_its_load(shared: Shared) -> None:
    """There is nothing to choose, and its report would be sent just when a call begins."""
    target = f"127.0.0.1:{shared.services[0].port}"
    alone = ReplicaSet("llm", "cosyserve.v1.LlmService", [target], 1 << 20, lambda: None)
    try:
        await until(lambda: alone.serving)
        both = await shared.caller()
        await until(lambda: [each and each.callers for each in reports(both)] == [1, 1])
        call = await shared.begin(alone, 0)
        await until(lambda: [each and each.other_calls for each in reports(both)] == [1, 0])
        assert reports(alone) == [None]
        shared.may_end.set()
        await call
    finally:
        await alone.close()
