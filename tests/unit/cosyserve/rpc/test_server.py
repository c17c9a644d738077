"""The one way to run a service, spoken to over a loopback port: health, errors as status, drain."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import AsyncMock

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve import errors
from cosyserve.rpc.server import ServerSettings, running
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tests.unit.cosyserve.rpc.small_service import (
    NAME,
    NOT_SERVING,
    SERVING,
    SETTINGS,
    loader,
    one_chunk,
    reached,
    served,
    status_of,
)


async def test_loading_then_serving_then_gone(unused_tcp_port: int) -> None:
    gate = asyncio.Event()
    settings = ServerSettings(listen=f"127.0.0.1:{unused_tcp_port}", drain_seconds=5)
    leave = asyncio.Event()

    async def serve() -> None:
        async with running(NAME, settings, loader(one_chunk, gate)):
            await leave.wait()

    serving = asyncio.create_task(serve())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{unused_tcp_port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        stub = synthesis_pb2_grpc.SynthesisServiceStub(channel)
        watches = [
            health.Watch(health_pb2.HealthCheckRequest(service=name), wait_for_ready=True) for name in ("", NAME)
        ]
        assert [(await watch.read()).status for watch in watches] == [NOT_SERVING, NOT_SERVING]
        error = await status_of(stub.Synthesize(synthesis_pb2.SynthesizeRequest(text="x")))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert "still loading" in error.details()
        gate.set()
        assert [(await watch.read()).status for watch in watches] == [SERVING, SERVING]
        assert [message.audio async for message in stub.Synthesize(synthesis_pb2.SynthesizeRequest(text="x"))] == [b"x"]
        leave.set()
        assert [(await watch.read()).status for watch in watches] == [NOT_SERVING, NOT_SERVING]
        for watch in watches:
            watch.cancel()
    await serving


async def test_who_owns_its_health_publishes_it() -> None:
    owner = running(NAME, SETTINGS, loader(one_chunk), owns_health=True)
    async with owner as service, grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=NAME))
        assert (await watch.read()).status == NOT_SERVING
        await service.set_serving(True)
        assert (await watch.read()).status == SERVING
        watch.cancel()


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidRequest("speed is 3, allowed are 0.5 to 2.0"),
        errors.NotFound("no such voice"),
        errors.OutOfRange("behind the end"),
        errors.FailedPrecondition("another engine"),
        errors.Unavailable("llm is down"),
        errors.DeadlineExceeded("llm gave no answer"),
        errors.InternalFault("not a number"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("grouped", [False, True])
async def test_our_errors_become_their_status_in_and_out_of_a_task_group(
    error: errors.CosyserveError, grouped: bool
) -> None:
    async def behaviour(request: Any, context: Any) -> AsyncIterator[Any]:
        yield synthesis_pb2.SynthesizeResponse(audio=b"x")
        if not grouped:
            raise error
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(60))
            group.create_task(AsyncMock(side_effect=error)())

    async with served(behaviour) as stub:
        status = await status_of(stub.Synthesize(synthesis_pb2.SynthesizeRequest()))
    assert (status.code(), status.details()) == (type(error).code, error.message)


async def status_when(error: Exception) -> grpc.aio.AioRpcError:
    """What the caller reads of a method that raises `error`."""
    async with served(AsyncMock(side_effect=error)) as stub:
        return await status_of(stub.ListVoices(synthesis_pb2.ListVoicesRequest()))


async def test_a_retry_hint_is_decodable_as_google_rpc() -> None:
    status = await status_when(errors.Overloaded("4 of 4 streams are in use", retry_after=1.25))
    assert status.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    packed = status_pb2.Status.FromString(dict(status.trailing_metadata())["grpc-status-details-bin"])
    assert (packed.code, packed.message) == (8, "4 of 4 streams are in use")
    info = error_details_pb2.RetryInfo()
    assert packed.details[0].Unpack(info)
    assert info.retry_delay.ToMilliseconds() == 1250


async def test_a_bug_is_internal_and_its_text_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        status = await status_when(KeyError("secret text of a request"))
    assert status.code() is grpc.StatusCode.INTERNAL
    assert "KeyError" in status.details()
    assert "secret" not in status.details()
    assert "secret text of a request" in caplog.text


async def test_a_method_that_does_not_exist_is_unimplemented() -> None:
    async with reached(loader(one_chunk)) as channel:
        status = await status_of(channel.unary_unary(f"/{NAME}/Nothing")(b""))
    assert status.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drain_seconds": -3.0}, "drain_seconds is -3; it must not be negative"),
        ({"drain_seconds": float("nan")}, "drain_seconds is nan; it must not be negative"),
        ({"max_message_bytes": -7}, "max_message_bytes is -7, allowed are 65536 to 2147483647"),
        ({"max_connections": 0}, "allowed are 1 to 65536"),
        ({"max_streams_per_connection": 70_000}, "allowed are 1 to 65536"),
        ({"max_incoming_messages": 0}, "allowed are 1 to 1024"),
        ({"first_message_seconds": 0.0}, "allowed are 0.1 to 600"),
        ({"warm_up_from": ("10.0.0.1/8",)}, "has host bits set"),
        ({"log_level": "LOUD"}, "log_level is 'LOUD', allowed are CRITICAL"),
    ],
)
def test_settings_without_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ServerSettings(**{"listen": "127.0.0.1:0", **changes})


async def test_an_address_that_cannot_be_listened_on_is_a_setting(unused_tcp_port: int) -> None:
    taken = ServerSettings(listen=f"127.0.0.1:{unused_tcp_port}")
    async with running(NAME, taken, loader(one_chunk)):
        with pytest.raises(
            errors.SettingsError, match=f"listen is '127.0.0.1:{unused_tcp_port}', which cannot be listened on"
        ):
            async with running(NAME, taken, loader(one_chunk)):
                pass
