"""What an error of the speech service is as an HTTP status, and whether trying again may help."""

import math
import re
from dataclasses import dataclass

from cosyserve.errors import (
    AlreadyExists,
    CallerStalled,
    CosyserveError,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidRequest,
    LimitReached,
    NotFound,
    OutOfRange,
    Overloaded,
    PermissionDenied,
    SpeechFault,
    Unauthenticated,
    Unavailable,
)
from services.gateway.speech.request_record import current_record

_SERVER = re.compile(r"^server at \S+: ")
_STATUSES: tuple[tuple[type[CosyserveError], int, str], ...] = (
    (InvalidRequest, 400, "invalid_request"),
    (OutOfRange, 400, "out_of_range"),
    (FailedPrecondition, 400, "failed_precondition"),
    (Unauthenticated, 401, "invalid_api_key"),
    (PermissionDenied, 403, "permission_denied"),
    (NotFound, 404, "not_found"),
    (CallerStalled, 408, "caller_stalled"),
    (AlreadyExists, 409, "already_exists"),
    (LimitReached, 429, "rate_limit_exceeded"),
    (Overloaded, 429, "overloaded"),
    (Unavailable, 503, "unavailable"),
    (DeadlineExceeded, 504, "deadline_exceeded"),
)
_WORTH_RETRYING = (429, 503)


@dataclass(frozen=True)
class Failure:
    """An answer without audio. code: for programs; field: of the request, if one is to blame."""

    status: int
    code: str
    message: str
    retry_after: float | None = None
    """Seconds after which a retry may succeed."""
    field: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers that tell a client whether and when to try again, those that OpenAI's clients
        read among them."""
        headers = {"x-should-retry": "true" if self.status in _WORTH_RETRYING else "false"}
        if self.retry_after is not None:
            headers["retry-after"] = str(math.ceil(self.retry_after))
            headers["retry-after-ms"] = str(math.ceil(1000 * self.retry_after))
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"  # RFC 9110, section 11.6.1
        return headers

    @property
    def retry(self) -> dict[str, object]:
        """The field of a message that says when a retry may succeed; none if that is not known."""
        return {} if self.retry_after is None else {"retry_after_milliseconds": round(1000 * self.retry_after)}


def _without_address(message: str) -> str:
    """Our client names the server that it asked, which is not the caller's business here."""
    return _SERVER.sub("", message)


def failure_of(error: Exception) -> Failure:
    """Errors that are not ours say nothing about their cause: that may quote another caller. Noted
    in the record of the current request.
    """
    failure = _failure_of(error)
    current_record().answered(failure.status, failure.code, error)
    return failure


def _failure_of(error: Exception) -> Failure:
    if isinstance(error, SpeechFault):
        return Failure(500, error.guard.lower(), _without_address(error.message))
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            return Failure(status, code, _without_address(error.message), error.retry_after)
    message = error.message if isinstance(error, CosyserveError) else "the gateway failed; its log says why"
    return Failure(500, "internal", _without_address(message))
