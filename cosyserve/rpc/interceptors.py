"""The edge of every service: one span per call, and our exceptions as gRPC status."""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, NoReturn

import grpc
from google.protobuf import duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from cosyserve import telemetry
from cosyserve.errors import (
    CallersDeadline,
    CosyserveError,
    InternalFault,
    LimitReached,
    Quarantined,
    SpeechFault,
    Unavailable,
)
from cosyserve.metrics import hang_up, names
from cosyserve.metrics.hang_up import HangUp
from cosyserve.metrics.instruments import counter
from cosyserve.rpc.calls import LIMIT
from cosyserve.rpc.deadlines import at_deadline, callers_deadline, dropped
from cosyserve.rpc.load.reported import CallCounts, caller_of
from cosyserve.rpc.records.call_record import current_record

log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
_RETRY_SECONDS = 1.0
_LAST_WORDS_SECONDS = 1.0
_INFO = "/cosyserve.v1.InfoService/"
_WATCHES = ("/grpc.health.v1.Health/Watch", f"{_INFO}WatchLoad")
"""Calls that last as long as their caller: neither traced nor waited for."""
ERROR_DOMAIN = "cosyserve.v1"
LEAVING = "this server is leaving"
"""Cancellation message of a call that outlasts the drain; its caller reads UNAVAILABLE."""
_FAULTS = counter(names.FAULTS)


class EdgeInterceptor(grpc.aio.ServerInterceptor):
    """Wraps each handler of our own services, not health and reflection. Keeps track of the running
    calls. counts: counts those that are work.
    """

    def __init__(self, counts: CallCounts | None = None) -> None:
        self._counts = counts or CallCounts()
        self._calls: set[asyncio.Task[Any]] = set()
        self._watches: set[asyncio.Task[Any]] = set()
        self._refusing = False
        self._leaving = False
        self._parting: Callable[[], CosyserveError] = leaving

    async def refuse(self, seconds: float) -> None:
        """Answer new calls with UNAVAILABLE. Return when no call runs and no client watches the
        health, after `seconds` at the latest.

        A server that is stopped cancels calls whose connection has not read its GOAWAY yet, and
        their callers see CANCELLED as if they had hung up themselves. During this time they see the
        health, or get an answer.
        """
        self._refusing = True
        if present := self._calls | self._watches:
            await asyncio.wait(present, timeout=seconds)

    async def drain(self, seconds: float, *, broken: str = "") -> None:
        """Let the running calls end by themselves for so long; the remaining ones end with
        UNAVAILABLE. broken: why the engine cannot go on; without a retry hint, which shows the
        caller that this server was lost.
        """
        if broken:
            self._parting = lambda: Unavailable(broken)
        if self._calls:
            await asyncio.wait(self._calls, timeout=seconds)
        self._leaving = True
        if self._calls:
            for call in self._calls:
                call.cancel(LEAVING)
            await asyncio.wait(self._calls, timeout=_LAST_WORDS_SECONDS)

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        method: str = details.method
        if handler is not None and method in _WATCHES:
            return rebuilt(handler, self._counted)
        if handler is None or method.startswith("/grpc."):
            return handler
        if self._refusing:
            return grpc.stream_stream_rpc_method_handler(_refuse)
        return rebuilt(handler, lambda behaviour: self._guard(behaviour, method))

    def _counted(self, behaviour: Callable[[Any, Context], Any]) -> Callable[[Any, Context], Awaitable[None]]:
        async def watch(request: Any, context: Context) -> None:
            with member(self._watches):
                try:
                    await respond(behaviour(request, context), context)
                except CosyserveError as error:
                    await abort(context, error)

        return watch

    def _guard(self, behaviour: Callable[[Any, Context], Any], method: str) -> Callable[[Any, Context], Awaitable[Any]]:
        is_work = not method.startswith(_INFO)

        async def call(request: Any, context: Context) -> Any:
            metadata = context.invocation_metadata()
            counted = self._counts.counted(caller_of(metadata)) if is_work else contextlib.nullcontext()
            with (
                telemetry.call_span(method.lstrip("/"), telemetry.incoming(metadata)),
                member(self._calls),
                counted,
            ):
                waited_for = hang_up.begin()
                try:
                    if self._refusing:  # since its handler was chosen its first message was awaited
                        raise leaving()
                    async with callers_deadline(context):
                        return await self._unless_hung_up(respond(behaviour(request, context), context), waited_for)
                except grpc.aio.AbortError:
                    raise
                except asyncio.CancelledError:
                    if not self._leaving:
                        # gRPC itself ends a call at its deadline, which may be noticed first.
                        if at_deadline(context):
                            dropped("call")
                        raise
                    await abort(context, self._parting())
                except Exception as error:
                    if isinstance(ours := our_error(error), CallersDeadline):
                        dropped(ours.queue)
                    if caller_hung_up(context, error):
                        waited_for.notice()
                        log.debug("%s was hung up on", method)
                        raise asyncio.CancelledError from None
                    await abort(context, as_served(error, method))
                finally:
                    waited_for.release()

        return call

    async def _unless_hung_up(self, work: Coroutine[Any, Any, Any], waited_for: HangUp) -> Any:
        """The result of `work`, in a task of its own: the cancellation of this one is seen at once,
        not when everything that `work` has to tidy up is over.
        """
        task = asyncio.ensure_future(work)
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as cancelled:
                if not self._leaving:
                    waited_for.notice()
                task.cancel(*cancelled.args)
        return task.result()


async def respond(result: Any, context: Context) -> Any:
    """The response that the behaviour of a method gives; None for a generator, whose responses are
    written.
    """
    if not inspect.isasyncgen(result):
        return await result
    async with contextlib.aclosing(result):
        async for response in result:
            await context.write(response)
    return None


def kind_of(handler: Any) -> str:
    """Such as unary_stream: the attribute of a method handler that holds its behaviour."""
    return "_".join("stream" if one else "unary" for one in (handler.request_streaming, handler.response_streaming))


def rebuilt(handler: Any, wrap: Callable[[Any], Any]) -> Any:
    """`handler` with its behaviour wrapped."""
    kind = kind_of(handler)
    return getattr(grpc, f"{kind}_rpc_method_handler")(
        wrap(getattr(handler, kind)), handler.request_deserializer, handler.response_serializer
    )


@contextlib.contextmanager
def member(tasks: set[asyncio.Task[Any]]) -> Iterator[None]:
    """The current task is among `tasks` while the block runs."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a call is always a task")
    tasks.add(task)
    try:
        yield
    finally:
        tasks.discard(task)


def leaving() -> Unavailable:
    """The error of a call that is refused while the server drains."""
    return Unavailable("this server is leaving; send the request again", retry_after=_RETRY_SECONDS)


async def _refuse(request: Any, context: Context) -> None:
    await abort(context, leaving())


def caller_hung_up(context: Context, error: BaseException) -> bool:
    """Whether `error` means that the caller hung up, so that no status reaches it. The failed write
    to it may be known first.
    """
    return (
        context.done()
        or context.cancelled()
        or all(isinstance(leaf, grpc.aio.InternalError) for leaf in _leaves(error))
    )


def as_served(error: BaseException, method: str) -> CosyserveError:
    """The error to answer with: ours as it is (out of a TaskGroup too), a bug as INTERNAL with its
    text only in the log.
    """
    if (ours := our_error(error)) is not None:
        return ours
    first = _leaves(error)[0]
    telemetry.failed(first)
    log.error("%s failed", method, exc_info=error)
    return InternalFault(f"{method} failed with {type(first).__name__}; the log of this service has the details")


def our_error(error: BaseException) -> CosyserveError | None:
    """The first of our errors in `error`, out of a TaskGroup too: its status is what the caller
    reads.
    """
    return next((leaf for leaf in _leaves(error) if isinstance(leaf, CosyserveError)), None)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


async def abort(context: Context, error: CosyserveError) -> NoReturn:
    """End the call with the status of the error. `grpc-status-details-bin` carries a retry hint as
    `google.rpc.RetryInfo`, and as `google.rpc.ErrorInfo` the guard that detected a fault, that a
    limit of an API key was reached, that the request is in quarantine, or that its caller's
    deadline is over. Raises CancelledError if the caller has hung up meanwhile.
    """
    telemetry.failed(error)
    current_record().answered(error)
    status = status_pb2.Status(code=error.code.value[0], message=error.message)
    for detail in _details(error):
        status.details.add().Pack(detail)
    trailing = (("grpc-status-details-bin", status.SerializeToString()),) if status.details else ()
    try:
        await context.abort(error.code, error.message, trailing_metadata=trailing)
    except grpc.aio.InternalError:
        # The status could not be sent, and gRPC has not said yet that the caller is gone.
        raise asyncio.CancelledError from None
    raise AssertionError("abort returns never")


def _details(error: CosyserveError) -> Iterator[Message]:
    if error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(round(error.retry_after * 1000))
        yield error_details_pb2.RetryInfo(retry_delay=delay)
    if isinstance(error, LimitReached):
        yield error_details_pb2.ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN, metadata={LIMIT: error.limit})
    elif isinstance(error, Quarantined | CallersDeadline):
        yield error_details_pb2.ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN)
    if isinstance(error, SpeechFault):
        _FAULTS.add(1, guard=error.guard)
        telemetry.annotate("guard", error.guard)
        yield error_details_pb2.ErrorInfo(reason=error.guard, domain=ERROR_DOMAIN)
