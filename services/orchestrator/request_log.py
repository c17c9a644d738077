"""Writes one log line for each request that speaks: its id, its figures, and how it ended. Never
its text.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import grpc

from cosyserve import telemetry
from cosyserve.errors import SpeechFault
from cosyserve.metrics import names
from cosyserve.metrics.instruments import counter
from cosyserve.rpc.interceptors import LEAVING, caller_hung_up, our_error
from services.orchestrator.access.caller import CALL, Call, current_call
from services.orchestrator.access.gate import count_speech

log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
ID_KEY = "x-request-id"
_GUARDS = counter(names.GUARDS)
_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


@dataclass(frozen=True)
class Figures:
    """What one request got."""

    voice: str = ""
    """Id of the voice; empty before it is known."""
    audio_seconds: float = 0.0
    """Length of the audio that was sent."""
    first_byte: float = 0.0
    """Milliseconds from admission to the first audio, as in the summary; 0: no audio was sent."""
    first_audible: float = 0.0
    """Milliseconds from admission to the first audible sample, as in the summary; 0: there was
    none.
    """


FIGURES: ContextVar[Callable[[], Figures]] = ContextVar("figures of the request")
"""Returns the figures of the current call; it is called when the call is over. To be set in the
task of the method: other tasks have a context of their own.
"""
_LINE_IS_OWED: ContextVar[bool] = ContextVar("a method around this one writes the line", default=False)
Servicer = TypeVar("Servicer")
Request = TypeVar("Request")
Answer = TypeVar("Answer")
Method = Callable[[Servicer, Request, Context], Awaitable[Answer]]


def logged(method: Method[Servicer, Request, Answer]) -> Method[Servicer, Request, Answer]:
    """Decorator of a method of the public service: each call writes its log line when it is over.
    One that an adapter calls leaves that to the adapter, whose methods are named with its
    `log_prefix` in front.
    """

    @wraps(method)
    async def call(self: Servicer, request: Request, context: Context) -> Answer:
        if _LINE_IS_OWED.get():
            return await method(self, request, context)
        status, owed = "OK", _LINE_IS_OWED.set(True)
        FIGURES.set(Figures)
        if CALL.get(None) is None:  # a service without keys
            CALL.set(Call())
        try:
            return await method(self, request, context)
        except asyncio.CancelledError as ended:
            status = "UNAVAILABLE" if LEAVING in ended.args else "CANCELLED"
            raise
        except BaseException as error:
            if caller_hung_up(context, error):
                status = "CANCELLED"
            else:
                status = "INTERNAL" if (ours := our_error(error)) is None else ours.code.name
                if isinstance(ours, SpeechFault):
                    _GUARDS.add(1, guard=ours.guard, outcome="failed")
            raise
        finally:
            _LINE_IS_OWED.reset(owed)
            figures, request_id = FIGURES.get()(), _id_of(context)
            audited = current_call()
            audited.request_id, audited.audio_seconds = request_id, figures.audio_seconds
            audited.trace_id = telemetry.trace_id()
            count_speech(audited)
            log.info(
                "request %s %s voice=%s audio=%.2f s first_byte=%.0f ms first_audible=%.0f ms status=%s",
                *(
                    request_id,
                    getattr(self, "log_prefix", "") + method.__name__,
                    figures.voice or "-",
                    figures.audio_seconds,
                    figures.first_byte,
                    figures.first_audible,
                    status,
                ),
            )

    return call


def _id_of(context: Context) -> str:
    """The caller's x-request-id if it is valid, else the trace id of the call, else a random id."""
    for key, value in context.invocation_metadata() or ():
        if key == ID_KEY and isinstance(value, str) and _ID.fullmatch(value):
            return value
    return telemetry.trace_id() or secrets.token_hex(8)
