"""The outermost interceptor of a service with keys: no message of a call is read before its caller
is known.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from cosyserve.errors import CosyserveError
from cosyserve.rpc.interceptors import Context, abort, rebuilt
from cosyserve.rpc.records.counted_calls import answered
from services.orchestrator.access.caller import CALL, Call
from services.orchestrator.access.callers import Callers
from services.orchestrator.access.usage import UsageByKey

_HEALTH = "/grpc.health.v1."
_REFLECTION = "/grpc.reflection."
_REFUSAL_SECONDS = 0.05
"""A status that crosses the first write of a streaming caller is lost in many clients: by then it
is written. It also slows down those who try keys.
"""


class AccessGate(grpc.aio.ServerInterceptor):
    """Statuses: UNAUTHENTICATED, and UNAVAILABLE while a token cannot be checked. Health is open,
    for those who watch over the process. open_reflection: whether reflection is, too.
    """

    def __init__(self, callers: Callers, *, open_reflection: bool = False) -> None:
        self._callers = callers
        self._open = (_HEALTH, _REFLECTION) if open_reflection else (_HEALTH,)
        self.usage = UsageByKey()

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        method: str = details.method
        if method.startswith(self._open):
            return await continuation(details)
        try:
            call = await self._callers.call_of(details.invocation_metadata)
        except CosyserveError as error:
            self.usage.record(None, method, error.code.name, 0.0)
            # The caller is not read: its message may be large.
            return grpc.stream_stream_rpc_method_handler(_refusing(error))
        handler = await continuation(details)
        return None if handler is None else rebuilt(handler, lambda behaviour: self._counted(behaviour, method, call))

    def _counted(
        self, behaviour: Callable[[Any, Context], Any], method: str, call: Call
    ) -> Callable[[Any, Context], Awaitable[Any]]:
        async def served(request: Any, context: Context) -> Any:
            CALL.set(call)
            call.request_id = secrets.token_hex(8)
            begun = time.monotonic()

            def over(status: str) -> None:
                self.usage.record(call, method, status, 1000 * (time.monotonic() - begun))

            return await answered(behaviour(request, context), context, over)

        return served


def _refusing(error: CosyserveError) -> Callable[[Any, Context], Awaitable[None]]:
    async def refuse(requests: Any, context: Context) -> None:
        await asyncio.sleep(_REFUSAL_SECONDS)
        await abort(context, error)

    return refuse
