"""Refuses requests without any key before their body is read, where the speech service is known to
want one. Whether a key is valid, the speech service alone decides.
"""

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from cosyserve.errors import Unauthenticated
from services.gateway.serving.request_limit import HEALTH_PATHS
from services.gateway.serving.unread_request import refuse_unread
from services.gateway.speech.caller_key import key_of
from services.gateway.speech.failures import failure_of
from services.gateway.speech.refusals import AnswerByPath

OPEN_PATHS = ("/", "/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc", *HEALTH_PATHS)
OPEN_FOLDERS = ("/page/", "/static-offline-docs/")
"""What is served without a key: health, the page, and the description of the API."""
MISSING = "no API key came with the request; send it as `authorization: Bearer KEY` or `xi-api-key: KEY`"


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
