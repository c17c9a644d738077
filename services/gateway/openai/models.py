"""GET /v1/models: one model, and the names by which OpenAI's clients ask for speech."""

from fastapi import APIRouter, Request

from cosyserve.errors import NotFound
from services.gateway.speech.speaking import speaker_of

router = APIRouter()
OWN_MODEL = "cosyvoice2"
MODELS = (OWN_MODEL, "gpt-4o-mini-tts", "tts-1", "tts-1-hd")
"""All of them are the model that this server has: clients that choose from the list find their
default in it.
"""


@router.get("/v1/models")
async def list_models(request: Request) -> dict[str, object]:
    """The models' names."""
    await speaker_of(request).require_access()
    return {"object": "list", "data": [_model(name) for name in MODELS]}


@router.get("/v1/models/{name}")
async def get_model(name: str, request: Request) -> dict[str, object]:
    """One of them."""
    await speaker_of(request).require_access()
    if name not in MODELS:
        raise NotFound(f"there is no model {name!r}; this server has {', '.join(MODELS)}")
    return _model(name)


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "cosyserve"}
