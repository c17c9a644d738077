"""Reads the first message of every call under a time limit and in turn, before its handler sees the
call.

grpcio reads the only message of a unary request by itself, without a time limit; of a stream it
reads when asked. On the wire both are the same, so every handler is registered as a streaming one,
and its arguments are read here.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import grpc

from cosyserve.errors import CosyserveError, DeadlineExceeded, InvalidRequest
from cosyserve.rpc.first_message_limit import FirstMessageLimit
from cosyserve.rpc.interceptors import Context, abort, kind_of, leaving, member, respond
from cosyserve.tasks import retrieve_error

_HEALTH = "/grpc.health.v1."
_HEALTH_AT_ONCE = 8
_HEALTH_UNDISTURBED_SECONDS = 0.1
"""A health request is a few bytes, which arrive with the call."""
Decode = Callable[[bytes], Any]
Setup = TypeVar("Setup", covariant=True)


class Request(Protocol[Setup]):
    """A message of a bidirectional method: its oneof `part` is the setup or something else."""

    @property
    def setup(self) -> Setup: ...
    def WhichOneof(self, oneof_group: Literal["part"], /) -> str | None: ...  # noqa: N802 - as protobuf


async def setup_of(requests: AsyncIterator[Request[Setup]]) -> Setup:
    """The setup of a call, which must be its first message. Raises InvalidRequest if it is not."""
    first = await anext(aiter(requests), None)
    part = None if first is None else first.WhichOneof("part")
    if first is None or part != "setup":
        received = "no message came" if first is None else f"the first message carries {part or 'nothing'}"
        raise InvalidRequest(f"{received}, expected the setup")
    return first.setup


class FirstMessageInterceptor(grpc.aio.ServerInterceptor):
    """The outermost interceptor. Statuses: DEADLINE_EXCEEDED if no complete message came in time,
    RESOURCE_EXHAUSTED if other calls had to be read meanwhile, INVALID_ARGUMENT for bytes that are
    no message of the method, UNAVAILABLE if the server shuts down first.

    Health requests have a limit of their own: however many other calls never send a message, a
    supervisor gets its answer.
    """

    def __init__(self, at_once: int, seconds: float) -> None:
        """Create it inside the event loop that serves. at_once: first messages received at once;
        eight more are for the health service. seconds: for one message, including the wait for its
        turn.
        """
        self._first_messages = FirstMessageLimit(at_once, seconds)
        self._health = FirstMessageLimit(_HEALTH_AT_ONCE, seconds, _HEALTH_UNDISTURBED_SECONDS)
        self._unread: set[asyncio.Task[Any]] = set()

    async def refuse(self, seconds: float) -> None:
        """Refuse all calls whose first message has not been read, except those to the health
        service, with UNAVAILABLE. Return when they have been answered, after `seconds` at the
        latest.
        """
        self._first_messages.close(leaving)
        if self._unread:
            await asyncio.wait(self._unread, timeout=seconds)

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        if handler is None or handler.request_deserializer is None:
            return handler
        first = partial(_first, self._health) if details.method.startswith(_HEALTH) else self._of_others
        served = _reading(
            getattr(handler, kind_of(handler)), first, handler.request_deserializer, streamed=handler.request_streaming
        )
        return grpc.stream_stream_rpc_method_handler(served, None, handler.response_serializer)

    async def _of_others(self, context: Context) -> bytes | None:
        """Ends the call itself if its message cannot be read, so that `refuse` waits for the
        response.
        """
        with member(self._unread):
            try:
                return await _first(self._first_messages, context)
            except CosyserveError as error:
                await abort(context, error)


def _reading(
    behaviour: Callable[[Any, Context], Any],
    read_first: Callable[[Context], Awaitable[bytes | None]],
    decode: Decode,
    *,
    streamed: bool,
) -> Callable[..., Awaitable[None]]:
    async def call(_: object, context: Context) -> None:
        try:
            first = await read_first(context)
            message = None if first is None else decoded(first, decode)
            if message is None and not streamed:
                raise InvalidRequest("the call ended without a message")
            result = behaviour(_messages(message, context, decode) if streamed else message, context)
            if (response := await respond(result, context)) is not None:
                await context.write(response)
        except CosyserveError as error:
            await abort(context, error)

    return call


async def _first(limit: FirstMessageLimit, context: Context) -> bytes | None:
    """The bytes of the first message; None when the call ends without one."""
    begun = asyncio.get_running_loop().time()
    async with limit.turn(context.peer()) as turn:
        left = begun + limit.seconds - asyncio.get_running_loop().time()
        # A cancelled read leaks memory (cosyserve.rpc.calls); this one ends with the call, and may
        # fail after the call was answered.
        reading = asyncio.ensure_future(context.read())
        reading.add_done_callback(retrieve_error)
        await asyncio.wait((reading, turn.lost), timeout=max(left, 0.0), return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            message = reading.result()
            return None if message is grpc.aio.EOF else message
        raise turn.reason or DeadlineExceeded(f"the first message was not complete after {limit.seconds:g} s")


def decoded(message: bytes, decode: Decode) -> Any:
    """Raises InvalidRequest for bytes that are no such message."""
    try:
        return decode(message)
    except CosyserveError:
        raise
    except Exception as error:  # whatever the decoder of a method raises means the same
        raise InvalidRequest(f"the message of {len(message)} bytes cannot be decoded as one of this method") from error


async def _messages(first: Any, context: Context, decode: Decode) -> AsyncIterator[Any]:
    if first is None:
        return
    yield first
    while (message := await context.read()) is not grpc.aio.EOF:
        yield decoded(message, decode)
