"""What every HTTP request and WebSocket gets: an id, the trace of its caller, and a line in the
log. Never its text, and no address that names a voice.
"""

import asyncio
import logging
import re
import secrets
import time
from typing import Any

from opentelemetry import propagate
from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cosyserve import telemetry
from cosyserve.metrics import names
from services.gateway.routes import ROUTERS
from services.gateway.serving.request_limit import HEALTH_PATHS
from services.gateway.speech.audio_response import cut
from services.gateway.speech.failures import Failure, failure_of
from services.gateway.speech.refusals import AnswerByPath
from services.gateway.speech.request_record import RequestRecord, active, noting, status_name

log = logging.getLogger(__name__)
_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_QUIET = (*HEALTH_PATHS, "/page/{name:path}")
"""Routes that have no line in the log."""


class RequestContext:
    """An ASGI middleware, the outermost one. failed: the answer to a request that raised what no
    handler expected.
    """

    def __init__(self, app: ASGIApp, failed: AnswerByPath) -> None:
        self._app, self._failed = app, failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _ID.fullmatch(given) else secrets.token_hex(8)
        record = RequestRecord()
        begun, status, sent = record.begun, 0, 0
        first_byte: float | None = None

        async def observed(message: Message) -> None:
            nonlocal status, sent, first_byte
            if message["type"] in ("http.response.start", "websocket.http.response.start", "websocket.accept"):
                status = message.get("status", 101)
                MutableHeaders(scope=message)["x-request-id"] = request_id
            elif size := len(message.get("body") or message.get("bytes") or message.get("text") or b""):
                sent += size
                if first_byte is None:
                    first_byte = time.monotonic() - begun
                    if record.speaks and status < 400:  # a whole file may be refused when it has begun to sound
                        record.api = _api(scope)
                        record.heard()
            await send(message)

        counted = (active if scope["type"] == "http" else noting)(record)
        with telemetry.call_span(f"gateway {scope.get('method', 'WEBSOCKET')}", propagate.extract(headers)), counted:
            telemetry.annotate("request.id", request_id)
            try:
                await self._app(scope, receive, observed)
            except asyncio.CancelledError:
                # The drain cuts what has not ended in its time.
                record.status = "UNAVAILABLE"
                failure = Failure(503, "draining", "the gateway is being stopped", 1.0)
                if scope["type"] == "websocket":
                    if status != 101:  # otherwise its API has closed it
                        raise
                elif status:
                    cut(scope, failure.message)
                else:
                    await self._failed(scope, failure)(scope, receive, observed)
            except Exception as error:
                telemetry.failed(error)
                if status or scope["type"] == "websocket":
                    raise
                log.exception("%s failed", request_id)
                await self._failed(scope, failure_of(error))(scope, receive, observed)
            finally:
                # Of a WebSocket each utterance is counted, and a connection only if it was refused.
                if (scope["type"] == "http" or status >= 400) and _route(scope) not in _QUIET:
                    record.api, record.status = _api(scope), record.status or status_name(status)
                    record.count()
                if _route(scope) not in _QUIET:
                    log.info(
                        "%s %s %s: status %s, %d bytes, first after %s ms, %.0f ms in all",
                        request_id,
                        scope.get("method", "WEBSOCKET"),
                        _route(scope),
                        status or "none",
                        sent,
                        "-" if first_byte is None else f"{1000 * first_byte:.0f}",
                        1000 * (time.monotonic() - begun),
                    )


def _api(scope: Scope) -> str:
    """The API to whose package the route belongs, also of a request that was refused before there
    was one.
    """
    module = getattr(scope.get("endpoint") or _endpoint(scope), "__module__", "")
    api = module.removeprefix("services.gateway.").partition(".")[0]
    return api if api in names.METHODS[names.GATEWAY] else "other"


def _endpoint(scope: Scope) -> Any:
    """What would have answered; None: nothing."""
    matches = (route.matches(scope) for router in ROUTERS for route in router.routes)
    return next((found["endpoint"] for match, found in matches if match is Match.FULL), None)


def _route(scope: Scope) -> str:
    """The path as the route writes it, with names in place of values."""
    return getattr(scope.get("route"), "path", None) or "(no route)"
