"""POST /v1/audio/conversions: what a recording says, said by another voice. OpenAI has no such
endpoint; this one has the form of its uploads.
"""

from typing import Annotated

from fastapi import APIRouter, Form, Request, UploadFile
from starlette.responses import Response

from cosyserve.audio.compressed import FileFormat, file_encoder
from cosyserve.client.options import ConversionOptions
from cosyserve.spec import SAMPLE_RATE
from services.gateway.openai.error_object import error_response
from services.gateway.speech.audio_response import AUDIO_CONTENT, AudioResponse
from services.gateway.speech.encoded_speech import encoded
from services.gateway.speech.speaking import speaker_of

router = APIRouter()


@router.post("/v1/audio/conversions", response_class=Response, responses={200: {"content": AUDIO_CONTENT}})
async def create_conversion(
    request: Request,
    file: UploadFile,
    voice: Annotated[str, Form()] = "",
    response_format: Annotated[FileFormat, Form()] = FileFormat.MP3,
    speed: Annotated[float, Form()] = 1.0,
    seed: Annotated[int | None, Form(ge=0, lt=1 << 64)] = None,
    sample_rate: Annotated[int, Form(ge=8_000, le=48_000)] = SAMPLE_RATE,
) -> Response:
    """Speak what a recording says with another voice."""
    speaker = speaker_of(request)
    encoder = file_encoder(response_format, sample_rate)
    options = ConversionOptions(speed=speed, seed=seed, sample_rate=sample_rate)
    utterance = await speaker.convert(await file.read(), voice, options)
    return AudioResponse(
        utterance, encoded(utterance, encoder), response_format.media_type, error_response, speaker.reader_seconds
    )
