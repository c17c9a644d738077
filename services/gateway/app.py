"""The application: every API on one speech service, behind the same limits."""

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi_offline import FastAPIOffline
from starlette.responses import Response
from starlette.status import HTTP_405_METHOD_NOT_ALLOWED

from cosyserve.client import AsyncClient
from cosyserve.keys.secret import key_of_file
from cosyserve.metrics import instruments
from cosyserve.rpc.health_port import HealthPort
from cosyserve.rpc.service_info import release
from cosyserve.tasks import cancel_all
from cosyserve.tls.certificate_files import CurrentCertificates
from services.gateway import health
from services.gateway.api_document import document, methods_of
from services.gateway.body_limit import BodyLimit
from services.gateway.caller_check import KeyRequired, OriginCheck
from services.gateway.openai.error_object import error_response
from services.gateway.request_context import RequestContext
from services.gateway.routes import ROUTERS, answer_in_form
from services.gateway.serving.open_connections import ConnectionLimits
from services.gateway.serving.request_limit import RequestLimit
from services.gateway.settings import GatewaySettings
from services.gateway.speech.drain import Drain
from services.gateway.speech.encoded_speech import HeldAudio
from services.gateway.speech.refusals import EXPECTED, refused
from services.gateway.speech.request_record import REQUESTS
from services.gateway.speech.speaking import Speaker
from services.gateway.speech.voice_names import VoiceNames
from services.gateway.wyoming.connection import IDLE_SECONDS, Patience
from services.gateway.wyoming.server import WyomingServer


def application(
    settings: GatewaySettings,
    wyoming: socket.socket | None = None,
    certificates: CurrentCertificates | None = None,
    probes: socket.socket | None = None,
) -> FastAPI:
    """The ASGI application; its connection to the speech service is opened when it starts.
    wyoming: a bound socket, on which Wyoming is served as long as the application is, with TLS if
    there are certificates. probes: a bound socket for health in plain HTTP, likewise.
    """

    @contextlib.asynccontextmanager
    async def connected(app: FastAPI) -> AsyncIterator[None]:
        # Its own environment gives it no key: each call has that of its caller.
        async with AsyncClient(
            settings.orchestrator, api_key="", tls=settings.calls, connections=settings.orchestrator_connections
        ) as client:
            app.state.speaker = Speaker(
                client, VoiceNames(client.voices), settings.reader_seconds, settings.websocket_idle_seconds
            )
            app.state.held = HeldAudio(settings.max_held_bytes)
            app.state.health = health.SpeechServiceHealth(
                settings.orchestrator, settings.calls, settings.orchestrator_connections
            )
            key = "" if settings.wyoming_api_key_file is None else key_of_file(settings.wyoming_api_key_file)
            app.state.wyoming = _wyoming_server(app.state.speaker.with_key(key), settings, certificates)
            instruments.watch_tasks()
            health_port = HealthPort(functools.partial(health.state_of, app))
            if probes is not None:
                await health_port.start(probes)
            if wyoming is not None:
                await app.state.wyoming.start(wyoming)
            draining = asyncio.create_task(_drain_wyoming(app))
            try:
                yield
            finally:
                await cancel_all((draining,))
                await app.state.wyoming.close(settings.drain_seconds)
                await health_port.close()
                await app.state.health.close()

    REQUESTS.limit = settings.max_connections
    app: FastAPI = FastAPIOffline(title="cosyserve", version=release(), lifespan=connected)
    # As an argument it is deprecated in favour of uvicorn's, which expects proxies to strip it.
    app.root_path = settings.root_path
    app.state.drain = Drain()
    for router in ROUTERS:
        app.include_router(router)
    app.openapi = functools.partial(document, app)  # type: ignore[method-assign]
    for kind in EXPECTED:
        app.add_exception_handler(kind, _refuse)
    app.add_middleware(
        BodyLimit,
        most_bytes=settings.max_body_bytes,
        at_once=settings.max_bodies,
        seconds=settings.body_seconds,
        refuse=answer_in_form,
    )
    if settings.require_key:
        app.add_middleware(KeyRequired, refuse=answer_in_form)
    app.add_middleware(
        RequestLimit,
        drain=app.state.drain,
        most_requests=settings.max_connections,
        most_websockets=settings.max_websockets,
        refuse=answer_in_form,
    )
    app.add_middleware(OriginCheck, allowed=settings.allowed_origins, refuse=answer_in_form)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allowed_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["*"],
        )
    app.add_middleware(RequestContext, failed=answer_in_form)
    return app


async def _drain_wyoming(app: FastAPI) -> None:
    await app.state.drain.until_begun()
    app.state.wyoming.begin_drain()


def _wyoming_server(
    speaker: Speaker, settings: GatewaySettings, certificates: CurrentCertificates | None
) -> WyomingServer:
    patience = Patience(IDLE_SECONDS, settings.body_seconds, settings.reader_seconds)
    if settings.wyoming_plain:
        return WyomingServer(speaker, patience, settings.wyoming_connections)
    return WyomingServer(speaker, patience, settings.wyoming_connections, certificates, settings.tls_client_names)


def connection_limits(settings: GatewaySettings) -> ConnectionLimits:
    """What applies to a connection before there is a request that a middleware could see."""
    return ConnectionLimits(settings.max_connections, settings.head_seconds, error_response, settings.tls_client_names)


async def _refuse(request: Request, error: Exception) -> Response:
    response = refused(request, error, lambda failure: answer_in_form(request.scope, failure))
    if response.status_code == HTTP_405_METHOD_NOT_ALLOWED:
        methods = methods_of(request.app, request.scope["path"].removeprefix(request.scope["root_path"]))
        if methods:
            response.headers["allow"] = ", ".join(methods)
    return response
