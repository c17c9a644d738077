"""The routes of every API, and the form in which each API refuses a request."""

from services.gateway import health
from services.gateway.cosyvoice import administration, inference
from services.gateway.cosyvoice.refusal import refusal
from services.gateway.elevenlabs import error_detail
from services.gateway.elevenlabs import models as elevenlabs_models
from services.gateway.elevenlabs import speech as elevenlabs_speech
from services.gateway.elevenlabs import voices as elevenlabs_voices
from services.gateway.elevenlabs.sockets import endpoints
from services.gateway.jambonz import stream as jambonz_stream
from services.gateway.jambonz import synthesis as jambonz_synthesis
from services.gateway.openai import conversions, models, speech, voices
from services.gateway.openai.error_object import error_response
from services.gateway.page import serving as page
from services.gateway.speech.refusals import answer_by_path
from services.gateway.vllm_omni import session
from services.gateway.websocket import stream

ROUTERS = (
    health.router,
    # In front of OpenAI's, whose path it has for callers with ElevenLabs' headers.
    elevenlabs_models.router,
    elevenlabs_speech.router,
    elevenlabs_voices.router,
    endpoints.router,
    speech.router,
    voices.router,
    models.router,
    conversions.router,
    inference.router,
    administration.router,
    jambonz_synthesis.router,
    jambonz_stream.router,
    stream.router,
    session.router,
    page.router,
)
"""Of two routes of one path, the first one that takes the request answers it."""

answer_in_form = answer_by_path(
    dict.fromkeys(("/v1/text-to-speech", "/v1/voices", "/v2/voices"), error_detail.error_response)
    | dict.fromkeys(("/inference_", "/list_voices", "/warmup_trt", "/performance_info"), refusal)
    | {"/jambonz": jambonz_synthesis.error_response},
    error_response,
)
"""A refusal before a handler has seen the request; paths of no API are answered as OpenAI's are."""
