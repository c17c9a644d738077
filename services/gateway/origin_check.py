"""Refuses what a browser sends on behalf of a page of another origin. A browser asks before most
such requests (CORS), but neither before it opens a WebSocket nor before it posts a form.
"""

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from services.gateway.serving.unread_request import refuse_unread
from services.gateway.speech.failures import Failure
from services.gateway.speech.refusals import AnswerByPath

_HARMLESS = ("GET", "HEAD", "OPTIONS")


class OriginCheck:
    """An ASGI middleware. allowed: origins besides the gateway's own; `*` means all."""

    def __init__(self, app: ASGIApp, allowed: Sequence[str], refuse: AnswerByPath) -> None:
        self._app, self._allowed, self._refuse = app, allowed, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope.get("method") in _HARMLESS:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        own = origin is not None and origin.partition("://")[2] == headers.get("host")
        if origin is None or own or origin in self._allowed or "*" in self._allowed:
            await self._app(scope, receive, send)
        else:
            message = "the origin of this page may not call the gateway; ALLOWED_ORIGINS names those that may"
            failure = Failure(403, "origin_not_allowed", message)
            await refuse_unread(self._refuse(scope, failure), scope, receive, send)
