"""How a service goes: drain, last words, a broken engine, and callers that go before it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve import errors
from cosyserve.rpc.calls import retry_delay
from cosyserve.rpc.interceptors import abort
from cosyserve.rpc.server import Service, ServiceBroken, running, serve
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tests.unit.cosyserve.rpc.small_service import (
    NAME,
    NOT_SERVING,
    SERVING,
    SETTINGS,
    loader,
    nothing,
    one_chunk,
    reached,
    status_of,
)

LEAVING = (grpc.StatusCode.UNAVAILABLE, "this server is leaving; send the request again", 1.0)


async def said_of(call: Any) -> tuple[grpc.StatusCode, str | None, float | None]:
    """Status, text and retry hint of a call that is refused."""
    error = await asyncio.wait_for(status_of(call), 5)
    return error.code(), error.details(), retry_delay(error)


async def test_drain_finishes_the_accepted_call_and_refuses_a_new_one() -> None:
    finish = asyncio.Event()

    async def behaviour(request: Any, context: Any) -> AsyncIterator[Any]:
        yield synthesis_pb2.SynthesizeResponse(audio=b"first")
        await finish.wait()
        yield synthesis_pb2.SynthesizeResponse(audio=b"last")

    server = contextlib.AsyncExitStack()
    service = await server.enter_async_context(running(NAME, SETTINGS, loader(behaviour)))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as channel:
        accepted = synthesis_pb2_grpc.SynthesisServiceStub(channel).Synthesize(synthesis_pb2.SynthesizeRequest())
        assert (await accepted.read()).audio == b"first"
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        leaving = asyncio.create_task(server.aclose())
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as newcomer:
            for late in (newcomer, channel):
                stub = synthesis_pb2_grpc.SynthesisServiceStub(late)
                status, _, _ = await said_of(stub.Synthesize(synthesis_pb2.SynthesizeRequest()))
                assert status is grpc.StatusCode.UNAVAILABLE
        finish.set()
        assert (await accepted.read()).audio == b"last"
        assert await accepted.read() is grpc.aio.EOF
    await asyncio.wait_for(leaving, 5)


async def test_calls_that_are_not_read_are_refused_when_the_server_leaves() -> None:
    """One has a turn, one waits for its own, and one sends its message in the moment in which the
    server leaves; another one is served.
    """
    begun = 0

    async def behaviour(requests: Any, context: Any) -> AsyncIterator[Any]:
        nonlocal begun
        async for _ in requests:
            begun += 1
            yield synthesis_pb2.SynthesizeResponse()
            await asyncio.sleep(2)

    server = contextlib.AsyncExitStack()
    service = await server.enter_async_context(
        running(NAME, replace(SETTINGS, max_incoming_messages=2), loader(one_chunk, streaming=behaviour))
    )
    message = synthesis_pb2.StreamingSynthesizeRequest()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as channel:
        stub = synthesis_pb2_grpc.SynthesisServiceStub(channel)
        accepted = stub.StreamingSynthesize()
        await accepted.write(message)
        await accepted.read()
        unread = [stub.StreamingSynthesize() for _ in range(3)]
        await asyncio.sleep(0.2)
        leaving = asyncio.create_task(server.aclose())
        await unread[0].write(message)
        async with asyncio.timeout(3):
            assert [await said_of(call) for call in unread] == [LEAVING] * 3
        await accepted.done_writing()
        assert await accepted.read() is grpc.aio.EOF
        assert await accepted.code() is grpc.StatusCode.OK
    await asyncio.wait_for(leaving, 5)
    assert begun == 1


async def test_what_was_loaded_is_closed_also_when_the_block_fails() -> None:
    close = AsyncMock()
    with pytest.raises(RuntimeError, match="engine lost"):
        async with running(NAME, SETTINGS, AsyncMock(return_value=close)):
            raise RuntimeError("engine lost")
    close.assert_awaited_once_with()


async def test_a_failed_load_closes_the_port() -> None:
    load = AsyncMock(side_effect=errors.ModelError("llm.pt: missing"))
    with pytest.raises(errors.ModelError, match=r"llm\.pt: missing"):
        async with running(NAME, SETTINGS, load):
            pytest.fail("the block must not begin")


async def test_a_broken_engine_ends_the_process_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    """NOT_SERVING first, so that callers turn away; then serve raises, which is exit status 1 to a
    supervisor.
    """

    async def load(service: Service) -> Any:
        await asyncio.to_thread(service.broken, "the device is lost")
        await asyncio.to_thread(service.broken, "and lost again")
        return nothing

    with pytest.raises(ServiceBroken, match="the device is lost"):
        await asyncio.wait_for(serve(NAME, SETTINGS, load), 5)
    assert "cannot go on: the device is lost" in caplog.text


async def test_what_was_loaded_is_not_searched_by_the_garbage_collector_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr("gc.collect", lambda: seen.append("collect"))
    monkeypatch.setattr("gc.freeze", lambda: seen.append("freeze"))

    async def load(service: Service) -> Any:
        seen.append("load")
        service.broken("enough")
        return nothing

    with pytest.raises(ServiceBroken, match="enough"):
        await asyncio.wait_for(serve(NAME, SETTINGS, load), 5)
    assert seen == ["load", "collect", "freeze"]


async def test_callers_that_hang_up_after_a_quiet_time_do_not_cost_the_connection() -> None:
    """gRPC pings when a call is hung up; after half a minute without data the default counts such
    pings as an attack.
    """
    options = [("grpc.keepalive_time_ms", 10_000), ("grpc.use_local_subchannel_pool", 1)]
    async with reached(loader(one_chunk), options) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        kept = stub.Watch(health_pb2.HealthCheckRequest(service=NAME))  # type: ignore[attr-defined]
        assert (await kept.read()).status == SERVING
        lost = asyncio.create_task(kept.read())
        await asyncio.sleep(33)
        for _ in range(25):
            call = stub.Watch(health_pb2.HealthCheckRequest(service=NAME))  # type: ignore[attr-defined]
            await call.read()
            waiting = asyncio.create_task(call.read())
            await asyncio.sleep(0.02)
            call.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await asyncio.sleep(0.1)
        assert not lost.done(), lost.exception()
        kept.cancel()
        await asyncio.gather(lost, return_exceptions=True)


async def test_a_call_that_outlasts_the_drain_is_told_to_come_again() -> None:
    begun = asyncio.Event()

    async def endless(request: Any, context: Any) -> AsyncIterator[Any]:
        yield synthesis_pb2.SynthesizeResponse(audio=b"first")
        begun.set()
        await asyncio.Event().wait()

    async with contextlib.AsyncExitStack() as exits:
        service = await exits.enter_async_context(running(NAME, replace(SETTINGS, drain_seconds=0.2), loader(endless)))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as channel:
            stub = synthesis_pb2_grpc.SynthesisServiceStub(channel)
            waiting = asyncio.create_task(said_of(stub.Synthesize(synthesis_pb2.SynthesizeRequest())))
            await begun.wait()
            await exits.aclose()
            assert await waiting == LEAVING


async def test_a_status_that_cannot_be_sent_is_a_caller_that_hung_up() -> None:
    """gRPC fails the status before it says that the caller is gone."""
    context = AsyncMock()
    context.abort.side_effect = grpc.aio.InternalError("Failed execute_batch")
    with pytest.raises(asyncio.CancelledError):
        await abort(context, errors.Unavailable("leaving"))
