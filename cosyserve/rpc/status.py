"""Translates the gRPC status of a failed call into an exception of `cosyserve.errors`."""

import contextlib
from collections.abc import Iterator
from typing import Final

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from cosyserve import errors

# grpc.aio replaces the true status by this text if a write crosses the end of the call.
_LOST_STATUS: Final = "Internal error from Core"
_BY_CODE: Final[dict[grpc.StatusCode, type[errors.CosyserveError]]] = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidRequest,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
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
    kind = _BY_CODE.get(code) or _speech_fault(error) or errors.InternalFault
    if text == _LOST_STATUS:
        kind, text = errors.Unavailable, "ended the call while it was being written to"
    if kind not in (errors.InvalidRequest, errors.NotFound, errors.AlreadyExists, errors.OutOfRange):
        text = f"{peer}: {text}"
    return kind(text, retry_after=retry_delay(error))


def retry_delay(error: grpc.aio.AioRpcError) -> float | None:
    """Seconds of `google.rpc.RetryInfo` in the trailing metadata, if any."""
    for detail in _details(error):
        info = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            return float(info.retry_delay.ToMilliseconds()) / 1000
    return None


def _speech_fault(error: grpc.aio.AioRpcError) -> type[errors.SpeechFault] | None:
    """The speech fault that `google.rpc.ErrorInfo` in the trailing metadata names, if any."""
    for detail in _details(error):
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.reason in errors.SPEECH_FAULTS:
            return errors.SPEECH_FAULTS[info.reason]
    return None


def _details(error: grpc.aio.AioRpcError) -> Iterator[any_pb2.Any]:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            with contextlib.suppress(DecodeError):
                yield from status_pb2.Status.FromString(value).details
