"""The outermost interceptor of a service with keys: no message of a call is read before its caller
is known. What each key has used is counted, and a line in the log for each call.
"""

import asyncio
import json
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

import grpc

from cosyserve.errors import CosyserveError
from cosyserve.metrics import names
from cosyserve.metrics.instruments import RecentTotals
from cosyserve.rpc.interceptors import Context, abort, rebuilt
from cosyserve.rpc.records.counted_calls import answered, method_name
from services.orchestrator.access.caller import CALL, Call
from services.orchestrator.access.callers import Callers

log = logging.getLogger("cosyserve.audit")
MOST_KEYS = 20_000
_REQUESTS = RecentTotals(names.KEY_REQUESTS)
_CHARACTERS, _SECONDS = RecentTotals(names.CHARACTERS), RecentTotals(names.AUDIO_SECONDS)
_HEALTH = "/grpc.health.v1."
_REFLECTION = "/grpc.reflection."
_REFUSAL_SECONDS = 0.05
"""A status that crosses the first write of a streaming caller is lost in many clients: by then it
is written. It also slows down those who try keys.
"""


@dataclass
class Used:
    """Since the process started."""

    requests: int = 0
    characters: int = 0
    audio_seconds: float = 0.0


class UsageByKey:
    """Of the 20,000 keys that were used last. Each line has the counts of its key so far, so that
    the last one of a key is what it has used of this process. process: its number, which each line
    has where several write to one log; 0: there is one.
    """

    def __init__(self, process: int = 0) -> None:
        self._process = {"process": process} if process else {}
        self.used: OrderedDict[str, Used] = OrderedDict()

    def record(self, call: Call | None, method: str, status: str, milliseconds: float) -> None:
        """A call is over. call: None for one that was refused before its caller was known. method:
        as gRPC has it, such as /cosyserve.v1.SynthesisService/Synthesize.
        """
        name = method_name(method)
        line: dict[str, object] = {"method": name, "status": status}
        if call is not None:
            caller = call.caller
            used = self.used.setdefault(caller.id, Used())
            self.used.move_to_end(caller.id)
            if len(self.used) > MOST_KEYS:
                self.used.popitem(last=False)
            used.requests += 1
            used.characters += call.characters
            used.audio_seconds += call.audio_seconds
            _REQUESTS.add(1, key=caller.id, tenant=caller.owner, status=status)
            line = {
                "request": call.request_id,
                **({"trace": call.trace_id} if call.trace_id else {}),
                "key": caller.id,
                "tenant": caller.owner,
                **line,
                **self._process,
                "audio_seconds": round(call.audio_seconds, 3),
                "characters": call.characters,
                "since_start": {**asdict(used), "audio_seconds": round(used.audio_seconds, 3)},
            }
        log.info("%s", json.dumps({**line, "milliseconds": round(milliseconds, 1)}))


def count_speech(call: Call) -> None:
    """A call that speaks is over; also of a service without keys."""
    labels = {"key": call.caller.id, "tenant": call.caller.owner}
    _CHARACTERS.add(call.characters, **labels)
    _SECONDS.add(call.audio_seconds, **labels)


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
