"""The application: every API on one speech service, behind the same limits."""

import contextlib
import socket
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi_offline import FastAPIOffline
from starlette.responses import Response

from cosyserve.client import AsyncClient
from cosyserve.rpc.service_info import release
from services.gateway import health
from services.gateway.body_limit import BodyLimit
from services.gateway.cosyvoice import administration, inference
from services.gateway.elevenlabs import error_detail
from services.gateway.elevenlabs import models as elevenlabs_models
from services.gateway.elevenlabs import speech as elevenlabs_speech
from services.gateway.elevenlabs import voices as elevenlabs_voices
from services.gateway.elevenlabs.sockets import multi_stream_input, stream_input
from services.gateway.jambonz import stream as jambonz_stream
from services.gateway.jambonz import synthesis as jambonz_synthesis
from services.gateway.openai import conversions, models, speech, voices
from services.gateway.openai.error_object import error_response
from services.gateway.origin_check import OriginCheck
from services.gateway.page import serving as page
from services.gateway.request_context import RequestContext
from services.gateway.settings import GatewaySettings
from services.gateway.speech.refusals import EXPECTED, answer_by_path, refused
from services.gateway.speech.speaking import Speaker
from services.gateway.speech.voice_names import VoiceNames
from services.gateway.speech.whole_file import HeldAudio
from services.gateway.vllm_omni import session
from services.gateway.websocket import stream
from services.gateway.wyoming.connection import IDLE_SECONDS, Patience
from services.gateway.wyoming.server import WyomingServer

_OPENAI = (speech.router, voices.router, models.router, conversions.router)
_ELEVENLABS = (
    elevenlabs_models.router,
    elevenlabs_speech.router,
    elevenlabs_voices.router,
    stream_input.router,
    multi_stream_input.router,
)
_COSYVOICE = (inference.router, administration.router)
_JAMBONZ = (jambonz_synthesis.router, jambonz_stream.router)
_ROUTERS = (
    health.router,
    *_ELEVENLABS,
    *_OPENAI,
    *_COSYVOICE,
    *_JAMBONZ,
    stream.router,
    session.router,
    page.router,
)
"""Of two routes of one path, the first one that takes the request answers it."""
_answer = answer_by_path(
    dict.fromkeys(("/v1/text-to-speech", "/v1/voices", "/v2/voices"), error_detail.error_response), error_response
)


def application(settings: GatewaySettings, wyoming: socket.socket | None = None) -> FastAPI:
    """The ASGI application; its connection to the speech service is opened when it starts.
    wyoming: a bound socket, on which Wyoming is served as long as the application is.
    """

    @contextlib.asynccontextmanager
    async def connected(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncClient(settings.orchestrator) as client:
            app.state.speaker = Speaker(client, VoiceNames(client.voices), settings.reader_seconds)
            app.state.held = HeldAudio(settings.max_held_bytes)
            app.state.health = health.SpeechServiceHealth(settings.orchestrator)
            app.state.draining = False
            app.state.wyoming = _wyoming_server(app.state.speaker, settings)
            if wyoming is not None:
                await app.state.wyoming.start(wyoming)
            try:
                yield
            finally:
                await app.state.wyoming.close(settings.drain_seconds)
                await app.state.health.close()

    app: FastAPI = FastAPIOffline(title="cosyserve", version=release(), lifespan=connected)
    # As an argument it is deprecated in favour of uvicorn's, which expects proxies to strip it.
    app.root_path = settings.root_path
    for router in _ROUTERS:
        app.include_router(router)
    for kind in EXPECTED:
        app.add_exception_handler(kind, _refuse)
    app.add_middleware(
        BodyLimit,
        most_bytes=settings.max_body_bytes,
        at_once=settings.max_bodies,
        seconds=settings.body_seconds,
        refuse=_answer,
    )
    app.add_middleware(OriginCheck, allowed=settings.allowed_origins, refuse=_answer)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allowed_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["*"],
        )
    app.add_middleware(RequestContext, failed=_answer)
    return app


def _wyoming_server(speaker: Speaker, settings: GatewaySettings) -> WyomingServer:
    patience = Patience(IDLE_SECONDS, settings.body_seconds, settings.reader_seconds)
    return WyomingServer(speaker, patience, settings.wyoming_connections)


async def _refuse(request: Request, error: Exception) -> Response:
    return refused(request, error, lambda failure: _answer(request.scope, failure))
