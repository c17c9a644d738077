"""Helpers for tests of a frontend over real gRPC: the server, its two text methods and refusals."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc

from cosyserve.rpc.server import running
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1 import frontend_pb2_grpc
from services.frontend.__main__ import SERVICE, load
from services.frontend.settings import FrontendSettings
from tests.stacks.calls import conversation


@contextlib.asynccontextmanager
async def served(settings: FrontendSettings) -> AsyncIterator[Any]:
    """The stub of a frontend with these settings while the block runs."""
    async with (
        running(SERVICE, settings, lambda service: load(service, settings)) as service,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as channel,
    ):
        yield frontend_pb2_grpc.FrontendServiceStub(channel)


async def analyze(stub: Any, text: str, **setup: Any) -> list[Any]:
    """All responses of Analyze."""
    return [response async for response in stub.Analyze(pb.AnalyzeRequest(setup=pb.AnalyzeSetup(**setup), text=text))]


async def stream(stub: Any, fragments: list[str], **setup: Any) -> list[Any]:
    """All responses of AnalyzeStream, one request per fragment."""

    def requests() -> Iterator[pb.AnalyzeStreamRequest]:
        yield pb.AnalyzeStreamRequest(setup=pb.AnalyzeSetup(**setup))
        yield from (pb.AnalyzeStreamRequest(text=fragment) for fragment in fragments)

    return list(await conversation(stub.AnalyzeStream(), requests()))
