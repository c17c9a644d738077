"""Refuses callers before the body of their request is read: those without any key, where the speech
service is known to want one, and pages of another origin.

Whether a key is valid, the speech service alone decides. A browser asks before most requests of
another origin (CORS), but neither before it opens a WebSocket nor before it posts a form.
"""

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from cosyserve.errors import Unauthenticated
from services.gateway.serving.request_limit import HEALTH_PATHS, refuse_unread
from services.gateway.speech.failures import Failure, failure_of
from services.gateway.speech.refusals import AnswerByPath
from services.gateway.speech.speaking import key_of

OPEN_PATHS = ("/", "/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc", *HEALTH_PATHS)
OPEN_FOLDERS = ("/page/", "/static-offline-docs/")
"""What is served without a key: health, the page, and the description of the API."""
MISSING = "no API key came with the request; send it as `authorization: Bearer KEY` or `xi-api-key: KEY`"
_HARMLESS = ("GET", "HEAD", "OPTIONS")


class KeyRequired:
    """An ASGI middleware. WebSockets pass: their first message may bring the key."""

    def __init__(self, app: ASGIApp, refuse: AnswerByPath) -> None:
        self._app, self._refuse = app, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_open(scope) and not _has_key(scope):
            failure = failure_of(Unauthenticated(MISSING))
            await refuse_unread(self._refuse(scope, failure), scope, receive, send)
            return
        await self._app(scope, receive, send)


def _is_open(scope: Scope) -> bool:
    path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDERS)


def _has_key(scope: Scope) -> bool:
    try:
        return bool(key_of(HTTPConnection(scope)))
    except Unauthenticated:
        return False


class OriginCheck:
    """An ASGI middleware that refuses what a browser sends on behalf of a page of another origin.
    allowed: origins besides the gateway's own; `*` means all."""

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
