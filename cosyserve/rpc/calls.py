"""The caller's side of a call: reads that may be cancelled, and its status as an exception of
`cosyserve.errors`.

grpcio (1.71 to 1.85) frees the native memory of a read only if the waiting task receives its
result: each read whose task is cancelled leaks a hundred bytes, and the whole message if one has
just arrived (github.com/grpc/grpc/issues/43360). So a read is never cancelled: the call is, and the
read ends by itself.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, Final, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from cosyserve import errors
from cosyserve.tasks import retrieve_error

LIMIT: Final = "limit"
"""Key of the metadata of `google.rpc.ErrorInfo` that names the limit of a key."""
_LATE_SECONDS = 1.0
Response = TypeVar("Response")
Detail = TypeVar("Detail", bound=Message)
StreamedCall = grpc.aio.UnaryStreamCall[Any, Response] | grpc.aio.StreamStreamCall[Any, Response]


async def read(call: StreamedCall[Response]) -> Response | None:
    """The next message, None after the last one. Cancelling it cancels the call. Raises AioRpcError
    as `call.read` does.
    """
    reading = asyncio.ensure_future(call.read())
    try:
        message = await asyncio.shield(reading)
    except asyncio.CancelledError:
        call.cancel()
        reading.add_done_callback(retrieve_error)
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


# grpc.aio replaces the true status by this text if a write crosses the end of the call.
_LOST_STATUS: Final = "Internal error from Core"
ENDED_BETWEEN: Final = "ended the call while it was being written to"
"""Text of the error in place of a status that was lost."""
_NEVER_REACHED: Final = (
    "failed to connect",
    "DNS resolution failed",
    "connections to all backends failing",
    "this service is still loading",
)
"""Beginnings of the texts of calls on which no peer has worked."""
_KEEP_THEIR_TEXT: Final = (
    errors.InvalidRequest,
    errors.NotFound,
    errors.AlreadyExists,
    errors.OutOfRange,
    errors.Unauthenticated,
    errors.LimitReached,
)
"""Errors whose text is about the request alone."""
_BY_CODE: Final[dict[grpc.StatusCode, type[errors.CosyserveError]]] = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidRequest,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.ALREADY_EXISTS: errors.AlreadyExists,
    grpc.StatusCode.OUT_OF_RANGE: errors.OutOfRange,
    grpc.StatusCode.FAILED_PRECONDITION: errors.FailedPrecondition,
    # A peer of the previous release, which lacks the method; another replica may have it.
    grpc.StatusCode.UNIMPLEMENTED: errors.FailedPrecondition,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.Overloaded,
    grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
    # A peer that cancels is shutting down; our own cancellation never arrives as a status.
    grpc.StatusCode.CANCELLED: errors.Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
}


def as_error(error: grpc.aio.AioRpcError, peer: str) -> errors.CosyserveError:
    """The status of a failed call as our exception. A bad request keeps its text; a failure names
    the peer, a stage by its name and not its address, because the text may reach a caller.
    """
    code, text = error.code(), error.details() or "no details"
    kind = _by_reason(error) or _BY_CODE.get(code) or _speech_fault(error) or errors.InternalFault
    if text == _LOST_STATUS:
        kind, text = errors.Unavailable, ENDED_BETWEEN
    elif kind is errors.Unavailable and _was_lost(error, text):
        kind = errors.PeerLost
    if kind not in _KEEP_THEIR_TEXT:
        text = f"{peer}: {text}"
    ours = kind(text, retry_after=retry_delay(error))
    if isinstance(ours, errors.LimitReached):
        ours.limit = next(filter(None, (info.metadata.get(LIMIT) for info in _infos(error))), ours.limit)
    return ours


def is_lost(error: grpc.aio.AioRpcError) -> bool:
    """Whether the true status was lost, because a write crossed the end of the call."""
    return error.details() == _LOST_STATUS


def _was_lost(error: grpc.aio.AioRpcError, text: str) -> bool:
    """Whether the peer had begun to work. A service that leaves, or is loading, gives a retry hint;
    a call that never reached one failed to connect.
    """
    return (
        error.code() is grpc.StatusCode.UNAVAILABLE
        and retry_delay(error) is None
        and not text.startswith(_NEVER_REACHED)
    )


def retry_delay(error: grpc.aio.AioRpcError) -> float | None:
    """Seconds of `google.rpc.RetryInfo` in the trailing metadata, if any."""
    hint = next(_details(error, error_details_pb2.RetryInfo), None)
    return None if hint is None else float(hint.retry_delay.ToMilliseconds()) / 1000


def _speech_fault(error: grpc.aio.AioRpcError) -> type[errors.SpeechFault] | None:
    """The speech fault that `google.rpc.ErrorInfo` in the trailing metadata names, if any."""
    return next((errors.SPEECH_FAULTS[reason] for reason in _reasons(error) if reason in errors.SPEECH_FAULTS), None)


def _by_reason(
    error: grpc.aio.AioRpcError,
) -> type[errors.LimitReached | errors.Quarantined | errors.CallersDeadline] | None:
    """The kind that its code and `google.rpc.ErrorInfo` name together, if any."""
    for kind in (errors.LimitReached, errors.Quarantined, errors.CallersDeadline):
        if error.code() is kind.code and kind.reason in _reasons(error):
            return kind
    return None


def _reasons(error: grpc.aio.AioRpcError) -> list[str]:
    return [info.reason for info in _infos(error)]


def _infos(error: grpc.aio.AioRpcError) -> list[error_details_pb2.ErrorInfo]:
    return list(_details(error, error_details_pb2.ErrorInfo))


def _details(error: grpc.aio.AioRpcError, kind: type[Detail]) -> Iterator[Detail]:
    """The messages of `kind` in the trailing metadata."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            with contextlib.suppress(DecodeError):
                for packed in status_pb2.Status.FromString(value).details:
                    detail = kind()
                    if packed.Unpack(detail):
                        yield detail
