"""Counts the calls of a public service: the outermost interceptor, which sees also those that are
refused before anything of them is read.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from cosyserve.metrics import names
from cosyserve.metrics.instruments import counter
from cosyserve.rpc.deadlines import at_deadline
from cosyserve.rpc.interceptors import Context, rebuilt, respond
from cosyserve.rpc.method_table import Handlers
from cosyserve.rpc.records.call_record import RECORD, CallRecord

_REQUESTS, _REFUSALS = counter(names.REQUESTS), counter(names.REFUSALS)
_OWN = "cosyserve.v1"
_UNCOUNTED = ("/grpc.", f"/{_OWN}.InfoService/")
"""Health, reflection and GetInfo: questions about the service, not requests to it."""
_BY_NUMBER = {status.value[0]: status for status in grpc.StatusCode}
OTHER = "other"
"""Label of methods that there are not: what a caller writes is no label."""


class CountedCalls(grpc.aio.ServerInterceptor):
    """handlers: of the service, by which its methods are known."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        method: str = details.method
        if method.startswith(_UNCOUNTED):
            return await continuation(details)
        record = CallRecord(method_name(method) if self._handlers.has(details) else OTHER)
        RECORD.set(record)
        handler = await continuation(details)
        if handler is None:
            _count(record, grpc.StatusCode.UNIMPLEMENTED.name)
            return None
        return rebuilt(handler, lambda behaviour: _counted(behaviour, record))


def method_name(method: str) -> str:
    """The method of a path such as /cosyserve.v1.SynthesisService/Synthesize; of another server's
    contract, or of gRPC itself, with its service in front, since several have a `Synthesize`.
    """
    service, _, name = method.removeprefix("/").rpartition("/")
    package, _, kind = service.rpartition(".")
    return name if package == _OWN else f"{kind}/{name}"


def _status_of(context: Context) -> str:
    """The name of the status with which a call was aborted."""
    code: Any = context.code()
    found = code if isinstance(code, grpc.StatusCode) else _BY_NUMBER.get(code)
    return "UNKNOWN" if found is None else found.name


def _cut_short(context: Context) -> str:
    """The status that the caller reads of a call that ended without one of ours."""
    return "DEADLINE_EXCEEDED" if at_deadline(context) else "CANCELLED"


def _counted(behaviour: Callable[[Any, Context], Any], record: CallRecord) -> Callable[[Any, Context], Awaitable[Any]]:
    async def served(request: Any, context: Context) -> Any:
        return await answered(behaviour(request, context), context, lambda status: _count(record, status))

    return served


async def answered(result: Any, context: Context, over: Callable[[str], None]) -> Any:
    """As `respond`. over: called with the name of the status, however the call ends."""
    status = "INTERNAL"
    try:
        answer = await respond(result, context)
        status = "OK"
        return answer
    except asyncio.CancelledError:
        status = _cut_short(context)
        raise
    except grpc.aio.AbortError:
        status = _status_of(context)
        raise
    except grpc.aio.InternalError:  # the call was over before its status could be sent
        status = _cut_short(context)
        raise
    finally:
        over(status)


def _count(record: CallRecord, status: str) -> None:
    _REQUESTS.add(1, method=record.method, status=status)
    if record.limit:
        _REFUSALS.add(1, limit=record.limit)
