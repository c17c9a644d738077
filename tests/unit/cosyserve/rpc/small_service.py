"""A service whose behaviour a test gives, and how to read the status of a call to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from cosyserve.rpc.server import ServerSettings, Service, running
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc

NAME = "cosyserve.v1.SynthesisService"
SETTINGS = ServerSettings(listen="127.0.0.1:0", drain_seconds=5)
NOT_SERVING, SERVING = health_pb2.HealthCheckResponse.NOT_SERVING, health_pb2.HealthCheckResponse.SERVING
Behaviour = Callable[[Any, Any], Any]


def loading(
    servicer: synthesis_pb2_grpc.SynthesisServiceServicer, gate: asyncio.Event | None = None
) -> Callable[[Service], Awaitable[Any]]:
    """The `load` argument of `running` for `servicer`, which is loaded when `gate` is set."""

    async def load(service: Service) -> Any:
        if gate is not None:
            await gate.wait()
        synthesis_pb2_grpc.add_SynthesisServiceServicer_to_server(servicer, service.handlers)
        return nothing

    return load


def loader(
    behaviour: Behaviour, gate: asyncio.Event | None = None, streaming: Behaviour | None = None
) -> Callable[[Service], Awaitable[Any]]:
    class Servicer(synthesis_pb2_grpc.SynthesisServiceServicer):
        Synthesize = staticmethod(behaviour)
        ListVoices = staticmethod(behaviour)
        StreamingSynthesize = staticmethod(streaming or behaviour)

    return loading(Servicer(), gate)


async def nothing() -> None:
    pass


@contextlib.asynccontextmanager
async def reached(
    load: Callable[[Service], Awaitable[Any]], options: Sequence[tuple[str, int]] = (), **settings: Any
) -> AsyncIterator[grpc.aio.Channel]:
    """A channel of `options` to the service of `load` while the block runs."""
    async with (
        running(NAME, replace(SETTINGS, **settings), load) as service,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.port}", options=options) as channel,
    ):
        yield channel


async def one_chunk(request: Any, context: Any) -> AsyncIterator[Any]:
    yield synthesis_pb2.SynthesizeResponse(audio=request.text.encode())


@contextlib.asynccontextmanager
async def served(behaviour: Behaviour) -> AsyncIterator[synthesis_pb2_grpc.SynthesisServiceStub]:
    async with reached(loader(behaviour)) as channel:
        yield synthesis_pb2_grpc.SynthesisServiceStub(channel)


async def status_of(call: Any) -> grpc.aio.AioRpcError:
    async def result() -> None:
        if not hasattr(call, "__aiter__"):
            await call
            return
        async for _ in call:
            pass

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await result()
    return caught.value
