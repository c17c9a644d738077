"""The edge of every service: one span per call, and our exceptions as gRPC status."""

import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from opentelemetry import trace

from cosyserve import telemetry
from cosyserve.errors import CosyserveError, InternalFault

log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]


class EdgeInterceptor(grpc.aio.ServerInterceptor):
    """Wraps each handler of our own services; health and reflection pass."""

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        method: str = details.method
        if handler is None or method.startswith("/grpc."):
            return handler
        kind = f"{'stream' if handler.request_streaming else 'unary'}_{'stream' if handler.response_streaming else 'unary'}"
        wrapped = _guard(getattr(handler, kind), method)
        build = getattr(grpc, f"{kind}_rpc_method_handler")
        return build(wrapped, handler.request_deserializer, handler.response_serializer)


def _guard(behaviour: Callable[[Any, Context], Any], method: str) -> Callable[[Any, Context], Awaitable[Any]]:
    async def call(request: Any, context: Context) -> Any:
        parent = telemetry.incoming(context.invocation_metadata())
        with telemetry.tracer.start_as_current_span(method.lstrip("/"), context=parent, kind=trace.SpanKind.SERVER):
            try:
                result = behaviour(request, context)
                if not inspect.isasyncgen(result):
                    return await result
                async with contextlib.aclosing(result):
                    async for message in result:
                        await context.write(message)
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                await abort(context, as_served(error, method))

    return call


def as_served(error: BaseException, method: str) -> CosyserveError:
    """The error to answer with: ours as it is (out of a TaskGroup too), a bug as INTERNAL with its text kept in the log."""
    leaves = list(_leaves(error))
    ours = [leaf for leaf in leaves if isinstance(leaf, CosyserveError)]
    if ours:
        return ours[0]
    log.error("%s failed", method, exc_info=error)
    return InternalFault(f"{method} failed with {type(leaves[0]).__name__}; the log of this service has the details")


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


async def abort(context: Context, error: CosyserveError) -> NoReturn:
    """End the call with the error's status; a retry hint travels as `google.rpc.RetryInfo` in `grpc-status-details-bin`."""
    trailing: list[tuple[str, bytes]] = []
    if error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(round(error.retry_after * 1000))
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        status = status_pb2.Status(code=error.code.value[0], message=error.message, details=[detail])
        trailing = [("grpc-status-details-bin", status.SerializeToString())]
    await context.abort(error.code, error.message, trailing_metadata=tuple(trailing))
    raise AssertionError("abort returns never")
