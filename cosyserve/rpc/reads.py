"""What a call answers, for somebody who may be cancelled while waiting for it.

grpcio (1.71 to 1.85) frees what a read has taken in native memory only when whoever waits for it
gets it: of each read whose task is cancelled a hundred bytes stay for good, and all of a message
that has just come (github.com/grpc/grpc/issues/43360). So a read is never cancelled: the call is
hung up, and the read ends by itself.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar, cast

import grpc

_LATE_SECONDS = 1.0
Response = TypeVar("Response")
StreamedCall = grpc.aio.UnaryStreamCall[Any, Response] | grpc.aio.StreamStreamCall[Any, Response]


async def read(call: StreamedCall[Response]) -> Response | None:
    """The next message, None behind the last one. To be cancelled here hangs up. Raises AioRpcError
    as `call.read`.
    """
    try:
        message = await asyncio.shield(call.read())
    except asyncio.CancelledError:
        call.cancel()
        raise
    return None if message is grpc.aio.EOF else cast("Response", message)


async def messages(call: StreamedCall[Response]) -> AsyncIterator[Response]:
    """All that are still to come, as by `read`."""
    while (message := await read(call)) is not None:
        yield message


async def answer(call: Awaitable[Response]) -> Response:
    """Of a unary call, which is one read from its start on: to be cancelled here hangs up a second
    later, when most have ended.
    """
    answering = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(answering)
    except asyncio.CancelledError:
        hanging_up = asyncio.get_running_loop().call_later(_LATE_SECONDS, answering.cancel)

        def ended(_: object) -> None:
            hanging_up.cancel()
            if not answering.cancelled():
                answering.exception()  # else asyncio logs an error as one that was forgotten

        answering.add_done_callback(ended)
        raise
