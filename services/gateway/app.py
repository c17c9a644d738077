"""The application: every API on one speech service, behind the same limits."""

import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.responses import Response

from cosyserve.client import AsyncClient
from cosyserve.errors import CosyserveError
from cosyserve.rpc.service_info import release
from services.gateway import health
from services.gateway.body_limit import BodyLimit
from services.gateway.openai import conversions, models, speech, voices
from services.gateway.openai.error_object import error_response
from services.gateway.origin_check import OriginCheck
from services.gateway.request_context import RequestContext
from services.gateway.settings import GatewaySettings
from services.gateway.speech.failures import Failure, failure_of
from services.gateway.speech.speaking import Speaker
from services.gateway.speech.voice_names import VoiceNames
from services.gateway.websocket import stream

_ROUTERS = (health.router, speech.router, voices.router, models.router, conversions.router, stream.router)
_LONGEST_QUOTED = 64


def application(settings: GatewaySettings) -> FastAPI:
    """The ASGI application; its connection to the speech service is opened when it starts."""

    @contextlib.asynccontextmanager
    async def connected(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncClient(settings.orchestrator) as client:
            app.state.speaker = Speaker(client, VoiceNames(client.voices), settings.reader_seconds)
            app.state.health = health.SpeechServiceHealth(settings.orchestrator)
            app.state.draining = False
            try:
                yield
            finally:
                await app.state.health.close()

    app: FastAPI = FastAPIOffline(
        title="cosyserve", version=release(), root_path=settings.root_path, lifespan=connected
    )
    for router in _ROUTERS:
        app.include_router(router)
    app.add_exception_handler(CosyserveError, _refuse)
    app.add_exception_handler(HTTPException, _refuse_http)
    app.add_exception_handler(RequestValidationError, _refuse_invalid)
    app.add_middleware(
        BodyLimit,
        most_bytes=settings.max_body_bytes,
        at_once=settings.max_bodies,
        seconds=settings.body_seconds,
        refuse=error_response,
    )
    app.add_middleware(OriginCheck, allowed=settings.allowed_origins, refuse=error_response)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allowed_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["*"],
        )
    app.add_middleware(RequestContext, failed=error_response)
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    return error_response(failure_of(error))


async def _refuse_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    codes = {404: "no_such_path", 405: "method_not_allowed"}
    message = f"{request.method} is not possible here" if error.status_code == 405 else str(error.detail)
    response = error_response(Failure(error.status_code, codes.get(error.status_code, "invalid_request"), message))
    response.headers.update(error.headers or {})
    return response


async def _refuse_invalid(request: Request, error: Exception) -> Response:
    """The first field that is wrong, what was found and what is allowed."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    if first["type"] == "json_invalid":
        return error_response(Failure(400, "invalid_json", f"the body is not JSON: {first['ctx']['error']}"))
    found = "" if first["type"] == "missing" else f"; got {_quoted(first.get('input'))}"
    message = f"{field or 'the body'}: {first['msg']}{found}"
    return error_response(Failure(400, "invalid_request", message, field=field or None))


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_QUOTED else f"{text[:_LONGEST_QUOTED]}..."
