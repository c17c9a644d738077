"""GET /v1/voices and /v2/voices: the voices of this server, in the form of this API; and
ElevenLabs' own voices, which its clients ask for unless another one is set, as voices of this
server.
"""

from typing import Annotated, Any

from fastapi import Query, Request

from cosyserve.client.types import VoiceDetails, VoiceLine
from services.gateway.elevenlabs.error_detail import ERROR_FORM, error_response
from services.gateway.speech.refusals import router_answering
from services.gateway.speech.speaking import speaker_of
from services.gateway.speech.voice_names import FEMALE, MALE, VoiceNames

router = router_answering(error_response, ERROR_FORM)
PREMADE = {
    "21m00Tcm4TlvDq8ikWAM": FEMALE,  # Rachel
    "cgSgspJ2msm6clMCkdW9": FEMALE,  # Jessica
    "cjVigY5qzO86Huf0OWal": MALE,  # Eric
    "CwhRBWXzGAHq8TQ4Fs17": MALE,  # Roger
    "EXAVITQu4vr4xnSDxMaL": FEMALE,  # Sarah
    "FGY2WhTYpPnrIDTdsKH5": FEMALE,  # Laura
    "hpp4J3VqNfWAUOO0d1Us": FEMALE,  # Bella, the default of LiveKit's plugin
    "IKne3meq5aSn9XLyUdCD": MALE,  # Charlie
    "iP95p4xoKVk53GoZ742B": MALE,  # Chris
    "JBFqnCBsd6RMkjVDRZzb": MALE,  # George, of the examples of ElevenLabs' SDK
    "nPczCjzI2devNBz1zQrb": MALE,  # Brian
    "onwK4e9ZLuTAKqWW03F9": MALE,  # Daniel
    "pFZP5JQG7iQjIQuC4Bku": FEMALE,  # Lily
    "pNInz6obpgDQGcFmaJgB": MALE,  # Adam
    "TX3LPaxmHKxFdv7VOQHJ": MALE,  # Liam
    "Xb7hH8MSUJpSbSDYk0k2": FEMALE,  # Alice
    "XrExE9yKIg1WjnnlVkGX": FEMALE,  # Matilda
}
"""Ids, and the sex that listeners hear."""


@router.get("/v1/voices")
async def list_voices(request: Request) -> dict[str, object]:
    """All voices, ordered by id."""
    return {"voices": [_voice(voice) for voice in await speaker_of(request).client.voices()]}


@router.get("/v2/voices")
async def search_voices(
    request: Request,
    search: str = "",
    page_size: Annotated[int, Query(ge=1, le=100)] = 10,
    next_page_token: str = "",
) -> dict[str, object]:
    """Voices page by page, ordered by id. search: part of an id, a name or a label, in any case.
    next_page_token: of the answer before.
    """
    found = [voice for voice in await speaker_of(request).client.voices() if search.casefold() in _searched(voice)]
    later = [voice for voice in found if voice.id > next_page_token]
    page = later[:page_size]
    more = len(later) > len(page)
    return {
        "voices": [_voice(voice) for voice in page],
        "has_more": more,
        "total_count": len(found),
        "next_page_token": page[-1].id if more else None,
    }


@router.get("/v1/voices/{voice_id}")
async def get_voice(voice_id: str, request: Request) -> dict[str, object]:
    """One voice."""
    speaker = speaker_of(request)
    name = await speaker.voices.voice_of(await voice_of(speaker.voices, voice_id))
    if not name:
        name = next((voice.id for voice in await speaker.client.voices() if voice.is_default), voice_id)
    return _voice(await speaker.client.voice(name))


def _searched(voice: VoiceLine) -> str:
    return " ".join((voice.id, voice.display_name, *voice.labels.values())).casefold()


def _voice(voice: VoiceLine) -> dict[str, Any]:
    labels = dict(voice.labels) | ({"language": voice.language_code} if voice.language_code else {})
    return {
        "voice_id": voice.id,
        "name": voice.display_name or voice.id,
        "category": "premade" if voice.is_preset else "cloned",
        "labels": labels,
        "description": voice.description if isinstance(voice, VoiceDetails) else "",
        "preview_url": None,
        "samples": None,
        "settings": None,
        "available_for_tiers": [],
        "high_quality_base_model_ids": [],
        "is_owner": not voice.is_preset,
    }


async def voice_of(names: VoiceNames, voice_id: str) -> str:
    """The name by which the speech service knows a voice. An id of ElevenLabs' is the first voice
    of that sex, else the default one; any other name means what it means in the other APIs.
    """
    sex = PREMADE.get(voice_id)
    return voice_id if sex is None else await names.first_of(sex)
