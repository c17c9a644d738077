"""GET /v1/models in the form of this API, for its clients alone: OpenAI's have the same path."""

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from cosyserve.errors import CosyserveError
from services.gateway.elevenlabs.error_detail import error_response
from services.gateway.speech.failures import failure_of
from services.gateway.speech.speaking import speaker_of

_NAMES = ("eleven_multilingual_v2", "eleven_flash_v2_5", "eleven_turbo_v2_5")
"""All of them are the model that this server has: clients that choose from the list find their
default in it.
"""
_MOST_CHARACTERS = 20_000


class ElevenLabsRoute(APIRoute):
    """A route for requests with the key of this API, or from its SDK, which sends none if it has
    none; others go on to the routes behind it.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        headers = Headers(scope=scope)
        if "xi-api-key" in headers or headers.get("x-fern-sdk-name", "").startswith(("elevenlabs", "@elevenlabs")):
            return super().matches(scope)
        return Match.NONE, {}


router = APIRouter(route_class=ElevenLabsRoute, include_in_schema=False)


@router.get("/v1/models", response_model=None)
async def list_models(request: Request) -> list[dict[str, object]] | Response:
    """The models' names, the generation of the model first."""
    try:
        own = await speaker_of(request).model()
    except CosyserveError as error:
        return error_response(failure_of(error))
    return [_model(name) for name in (own, *_NAMES)]


def _model(name: str) -> dict[str, object]:
    return {
        "model_id": name,
        "name": name,
        "can_do_text_to_speech": True,
        "can_do_voice_conversion": False,
        "can_be_finetuned": False,
        "can_use_style": False,
        "can_use_speaker_boost": False,
        "serves_pro_voices": False,
        "requires_alpha_access": False,
        "maximum_text_length_per_request": _MOST_CHARACTERS,
    }
