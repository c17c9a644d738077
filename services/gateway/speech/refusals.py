"""Errors that a request raised, as failures, and the form in which an API answers them."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from cosyserve.errors import CosyserveError
from services.gateway.speech.failures import Failure, failure_of
from services.gateway.speech.request_record import current_record

Answer = Callable[[Failure], Response]
"""A failure as an API's own error object."""
AnswerByPath = Callable[[Scope, Failure], Response]
"""The same for a request that no handler has seen."""
EXPECTED = (CosyserveError, HTTPException, RequestValidationError)
"""What handlers raise to refuse a request."""
_LONGEST_QUOTED = 64


def router_answering(answer: Answer, form: dict[str, Any], *further: int) -> APIRouter:
    """A router whose requests are refused in the form of their API; others are refused in the form
    of OpenAI's. form: the JSON schema of such an answer; further: statuses besides those that any
    request may get.
    """

    class Route(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handle_or_refuse(request: Request) -> Response:
                try:
                    return await handle(request)
                except EXPECTED as error:
                    return refused(request, error, answer)

            return handle_or_refuse

    content = {"application/json": {"schema": form}}
    statuses: dict[int | str, dict[str, Any]] = {
        status: {"description": "What is wrong.", "content": content} for status in (400, *further)
    }
    return APIRouter(route_class=Route, responses=statuses)


def answer_by_path(answers: Mapping[str, Answer], otherwise: Answer) -> AnswerByPath:
    """answers: of the APIs whose paths begin so."""

    def answer(scope: Scope, failure: Failure) -> Response:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        current_record().answered(failure.status, failure.code)
        return next((own for prefix, own in answers.items() if path.startswith(prefix)), otherwise)(failure)

    return answer


def refused(request: Request, error: Exception, answer: Answer) -> Response:
    """error: one of `EXPECTED`."""
    if isinstance(error, RequestValidationError):
        return answer(_invalid(error))
    if not isinstance(error, HTTPException):
        return answer(failure_of(error))
    codes = {404: "no_such_path", 405: "method_not_allowed"}
    message = f"{request.method} is not possible here" if error.status_code == 405 else str(error.detail)
    response = answer(Failure(error.status_code, codes.get(error.status_code, "invalid_request"), message))
    response.headers.update(error.headers or {})
    return response


def _invalid(error: RequestValidationError) -> Failure:
    """The first field that is wrong, what was found and what is allowed."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    if first["type"] == "json_invalid":
        return Failure(400, "invalid_json", f"the body is not JSON: {first['ctx']['error']}")
    found = "" if first["type"] == "missing" else f"; got {_quoted(first.get('input'))}"
    return Failure(400, "invalid_request", f"{field or 'the body'}: {first['msg']}{found}", field=field or None)


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_QUOTED else f"{text[:_LONGEST_QUOTED]}..."
