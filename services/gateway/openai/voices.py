"""/v1/audio/voices: the voices of the server, made from uploads and shared by all replicas."""

import json
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, UploadFile
from pydantic import BaseModel
from starlette.status import HTTP_201_CREATED

from cosyserve.client.types import VoiceDetails, VoiceLine
from cosyserve.errors import InvalidRequest
from services.gateway.speech.audio_response import unless_hung_up
from services.gateway.speech.request_model import require_flat
from services.gateway.speech.speaking import speaker_of

router = APIRouter()


class VoiceObject(BaseModel):
    """A voice, with the fields of OpenAI's voice objects and our own."""

    object: str = "audio.voice"
    id: str
    name: str
    created_at: int
    """Seconds since 1970; 0 for a voice of the model."""
    type: str
    """`preset` for a voice of the model, which cannot be deleted, else `audio_sample`."""
    language: str
    is_default: bool
    prompt_seconds: float
    labels: dict[str, str]


class VoiceDetailsObject(VoiceObject):
    """The same with what was given at its creation."""

    description: str
    transcript: str
    provenance: str


class VoiceList(BaseModel):
    """voices: the same list under the name by which Open WebUI reads it."""

    object: str = "list"
    data: list[VoiceObject]
    voices: list[VoiceObject]


class Deleted(BaseModel):
    object: str = "audio.voice.deleted"
    id: str
    deleted: bool = True


@router.get("/v1/audio/voices")
async def list_voices(request: Request) -> VoiceList:
    """All voices, ordered by id."""
    voices = [VoiceObject(**_fields(voice)) for voice in await speaker_of(request).client.voices()]
    return VoiceList(data=voices, voices=voices)


@router.get("/v1/audio/voices/{voice_id}")
async def get_voice(voice_id: str, request: Request) -> VoiceDetailsObject:
    """One voice."""
    return _details(await speaker_of(request).client.voice(voice_id))


@router.post("/v1/audio/voices", status_code=HTTP_201_CREATED)
async def create_voice(
    request: Request,
    audio_sample: UploadFile,
    name: Annotated[str, Form()] = "",
    consent: Annotated[str, Form()] = "",
    voice_id: Annotated[str, Form()] = "",
    transcript: Annotated[str, Form()] = "",
    language: Annotated[str, Form()] = "",
    description: Annotated[str, Form()] = "",
    labels: Annotated[str, Form()] = "",
    cut_prompt: Annotated[bool, Form()] = False,
) -> VoiceDetailsObject:
    """Make a voice of a recording of one speaker, 1 to 30 s long. consent: who agreed to it, kept
    with the voice. labels: a JSON object of strings. A caller that hangs up has no voice made.
    """
    making = speaker_of(request).client.create_voice(
        await audio_sample.read(),
        voice_id=voice_id,
        transcript=transcript,
        language_code=language,
        provenance=consent,
        display_name=name,
        description=description,
        labels=_read_labels(labels),
        cut_prompt=cut_prompt,
    )
    return _details(await unless_hung_up(request, making))


@router.delete("/v1/audio/voices/{voice_id}")
async def delete_voice(voice_id: str, request: Request) -> Deleted:
    """Delete a voice for good."""
    await speaker_of(request).client.delete_voice(voice_id)
    return Deleted(id=voice_id)


def _read_labels(text: str) -> dict[str, str]:
    require_flat(text.encode(), "labels")
    try:
        labels = json.loads(text or "{}")
        json.dumps(labels, ensure_ascii=False).encode()  # half of a surrogate pair is no character
    except ValueError as error:
        raise InvalidRequest(f"labels is not JSON: {error}") from error
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise InvalidRequest("labels is no JSON object whose values are strings")
    return labels


def _details(voice: VoiceDetails) -> VoiceDetailsObject:
    return VoiceDetailsObject(
        **_fields(voice), description=voice.description, transcript=voice.transcript, provenance=voice.provenance
    )


def _fields(voice: VoiceLine) -> dict[str, Any]:
    return {
        "id": voice.id,
        "name": voice.display_name or voice.id,
        "created_at": int(datetime.fromisoformat(voice.created).timestamp()) if voice.created else 0,
        "type": "preset" if voice.is_preset else "audio_sample",
        "language": voice.language_code,
        "is_default": voice.is_default,
        "prompt_seconds": voice.prompt_seconds,
        "labels": dict(voice.labels),
    }
