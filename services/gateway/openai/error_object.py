"""Failures as OpenAI's clients read them."""

from starlette.responses import JSONResponse, Response

from services.gateway.speech.failures import Failure


def error_response(failure: Failure) -> Response:
    """`{"error": {message, type, param, code}}` with the headers that decide about a retry."""
    return JSONResponse(error_object(failure), failure.status, failure.headers)


def error_object(failure: Failure) -> dict[str, object]:
    """The body alone, also the last event of a stream that failed."""
    return {
        "error": {
            "message": failure.message,
            "type": _kind(failure.status),
            "param": failure.field,
            "code": failure.code,
        }
    }


def _kind(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"
