"""/list_voices, /warmup_trt and /performance_info, as servers built on CosyVoice's have them."""

import json
import time
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import Form, Request
from starlette.responses import Response

from cosyserve.errors import InvalidRequest
from cosyserve.spec import SAMPLE_RATE
from services.gateway.cosyvoice.refusal import REFUSAL_FORM, UNPROCESSABLE, refusal
from services.gateway.speech.audio_response import AudioResponse
from services.gateway.speech.refusals import router_answering
from services.gateway.speech.speaking import Utterance, speaker_of

router = router_answering(refusal, REFUSAL_FORM, UNPROCESSABLE)
_MOST_CHARACTERS = 200
_DONE = (
    "one sentence was spoken through every stage and its audio dropped; engines are built and warmed before a stage "
    "serves, so no engine was built now"
)


@router.get("/list_voices")
async def list_voices(request: Request) -> dict[str, Any]:
    """The speakers that `spk_id` may name."""
    voices = await speaker_of(request).client.voices()
    return {
        "code": 0,
        "msg": "success",
        "voices": [voice.id for voice in voices],
        "count": len(voices),
        "details": [
            {
                "spk_id": voice.id,
                "name": voice.display_name or voice.id,
                "language": voice.language_code,
                "is_default": voice.is_default,
            }
            for voice in voices
        ],
    }


@router.post(
    "/warmup_trt",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
)
async def warmup_trt(
    request: Request, sample_text: Annotated[str, Form()] = "This is a test.", spk_id: Annotated[str, Form()] = ""
) -> Response:
    """Speak one sentence as any request is spoken, which counts against the number of streams. It
    shows that every stage works, and warms what a stage fills at its first request, such as caches
    of a voice.
    """
    if len(sample_text) > _MOST_CHARACTERS:
        raise InvalidRequest(f"sample_text has {len(sample_text)} characters, allowed are 1 to {_MOST_CHARACTERS}")
    speaker = speaker_of(request)
    utterance = await speaker.speak(sample_text, spk_id, {})
    return AudioResponse(utterance, _warmed(utterance), "application/json", refusal, speaker.reader_seconds)


@router.get("/performance_info")
async def performance_info(request: Request) -> dict[str, Any]:
    """What this gateway has spoken over HTTP, in all of its APIs, since it started."""
    speaker = speaker_of(request)
    await speaker.require_access()
    return {
        "sample_rate": SAMPLE_RATE,
        **speaker.figures.report(),
        "held_bytes": request.app.state.held.bytes,
    }


async def _warmed(utterance: Utterance) -> AsyncGenerator[bytes]:
    begun = time.monotonic()
    async for _ in utterance.chunks():
        pass
    summary = utterance.speech.summary
    answer = {
        "code": 0,
        "msg": "warmed",
        "warmup_time": round(time.monotonic() - begun, 3),
        "first_audio_seconds": utterance.speech.first_byte_seconds,
        "audio_seconds": summary.audio_seconds if summary else 0.0,
        "note": _DONE,
    }
    yield json.dumps(answer).encode()
