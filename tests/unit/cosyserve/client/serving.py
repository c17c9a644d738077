"""A server of the public endpoint whose behaviour a test gives, and a client of it."""

import contextlib
from collections.abc import AsyncIterator

from cosyserve.client import AsyncClient
from cosyserve.rpc.server import ServerSettings, running
from cosyserve.v1.synthesis_pb2_grpc import SynthesisServiceServicer
from tests.unit.cosyserve.rpc.small_service import NAME, loading

SETTINGS = ServerSettings(listen="127.0.0.1:0", drain_seconds=0)


@contextlib.asynccontextmanager
async def serving(servicer: SynthesisServiceServicer) -> AsyncIterator[AsyncClient]:
    """A client of `servicer` while the block runs."""
    async with (
        running(NAME, SETTINGS, loading(servicer)) as service,
        AsyncClient(f"127.0.0.1:{service.port}") as client,
    ):
        yield client
