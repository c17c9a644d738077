"""GET /v1/models: one model, and the names by which OpenAI's clients ask for speech."""

from fastapi import APIRouter, Request

from cosyserve.errors import NotFound
from services.gateway.speech.speaking import speaker_of

router = APIRouter()
_NAMES = ("gpt-4o-mini-tts", "tts-1", "tts-1-hd")
"""All of them are the model that this server has: clients that choose from the list find their
default in it.
"""


@router.get("/v1/models")
async def list_models(request: Request) -> dict[str, object]:
    """The models' names, the generation of the model first."""
    return {"object": "list", "data": [_model(name) for name in await _models(request)]}


@router.get("/v1/models/{name}")
async def get_model(name: str, request: Request) -> dict[str, object]:
    """One of them."""
    models = await _models(request)
    if name not in models:
        raise NotFound(f"there is no model {name!r}; this server has {', '.join(models)}")
    return _model(name)


async def _models(request: Request) -> tuple[str, ...]:
    return (await speaker_of(request).model(), *_NAMES)


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "cosyserve"}
