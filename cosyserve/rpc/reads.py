"""Cancellation-safe reads of responses: works around a memory leak of grpcio.

grpcio (1.71 to 1.85) frees the native memory of a read only if the waiting task receives its
result: each read whose task is cancelled leaks a hundred bytes, and the whole message if one has
just arrived (github.com/grpc/grpc/issues/43360). So a read is never cancelled: the call is, and the
read ends by itself.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar, cast

import grpc

from cosyserve.tasks import retrieve_error

_LATE_SECONDS = 1.0
Response = TypeVar("Response")
StreamedCall = grpc.aio.UnaryStreamCall[Any, Response] | grpc.aio.StreamStreamCall[Any, Response]


async def read(call: StreamedCall[Response]) -> Response | None:
    """The next message, None after the last one. Cancelling it cancels the call. Raises AioRpcError
    as `call.read` does.
    """
    try:
        message = await asyncio.shield(call.read())
    except asyncio.CancelledError:
        call.cancel()
        raise
    return None if message is grpc.aio.EOF else cast("Response", message)


async def messages(call: StreamedCall[Response]) -> AsyncIterator[Response]:
    """All further messages, as by `read`."""
    while (message := await read(call)) is not None:
        yield message


async def answer(call: Awaitable[Response]) -> Response:
    """The response of a unary call, which is a single read from its start. Cancelling it cancels
    the call a second later, when most calls have ended.
    """
    answering = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(answering)
    except asyncio.CancelledError:
        hanging_up = asyncio.get_running_loop().call_later(_LATE_SECONDS, answering.cancel)

        answering.add_done_callback(lambda _: hanging_up.cancel())
        answering.add_done_callback(retrieve_error)
        raise
