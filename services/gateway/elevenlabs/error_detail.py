"""Failures as ElevenLabs' clients read them: over HTTP, and as the last message of a WebSocket."""

from typing import Any

from starlette.responses import JSONResponse, Response

from services.gateway.speech.failures import Failure
from services.gateway.websocket.conversation import close_code

ERROR_FORM: dict[str, Any] = {
    "type": "object",
    "required": ["detail"],
    "properties": {
        "detail": {
            "type": "object",
            "required": ["status", "message"],
            "properties": {name: {"type": "string"} for name in ("status", "message", "param")},
        }
    },
}
"""JSON schema of a failure."""
_STATUSES = {"not_found": "voice_not_found", "overloaded": "system_busy"}
"""Codes that have a name in this API; a voice is all that can be missing."""


def error_response(failure: Failure) -> Response:
    """`{"detail": {status, message}}` with the headers that decide about a retry."""
    detail = {"status": _status(failure), "message": failure.message}
    if failure.field is not None:
        detail["param"] = failure.field
    return JSONResponse({"detail": detail}, failure.status, failure.headers)


def error_message(failure: Failure) -> dict[str, object]:
    """The same on a WebSocket, where `code` is the code with which a connection is closed."""
    return {"message": failure.message, "error": _status(failure), "code": close_code(failure), **failure.retry}


def _status(failure: Failure) -> str:
    return _STATUSES.get(failure.code, failure.code)
