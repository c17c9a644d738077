"""A gRPC server without the edge of our services, for servicers whose answers a test gives."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc


@contextlib.asynccontextmanager
async def listening(add_to_server: Callable[[Any, grpc.aio.Server], None], servicer: object) -> AsyncIterator[str]:
    """Address of a server with this servicer while the block runs. add_to_server: the function of
    the generated code. The end of the block cancels its calls.
    """
    server = grpc.aio.server()
    add_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)
