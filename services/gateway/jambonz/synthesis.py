"""POST /jambonz/synthesize: a whole text, spoken into the body of the answer
(https://docs.jambonz.org/guides/features/custom-tts-providers).
"""

import re
from typing import Annotated, Any, Literal

from fastapi import Header, Query, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, Response

from cosyserve.audio.compressed import FileFormat, file_encoder
from cosyserve.client.options import SynthesisOptions
from cosyserve.errors import InvalidRequest
from cosyserve.spec import SAMPLE_RATE
from services.gateway.speech.audio_response import BINARY, AudioResponse
from services.gateway.speech.encoded_speech import encoded
from services.gateway.speech.failures import Failure
from services.gateway.speech.refusals import router_answering
from services.gateway.speech.speaking import speaker_of

RATES = (8_000, 16_000, 24_000, 32_000, 48_000)
"""Of linear samples in jambonz."""
_AUDIO: dict[int | str, dict[str, Any]] = {
    200: {"content": dict.fromkeys(("audio/mpeg", "audio/wav", "audio/l16"), BINARY)}
}
_L16 = re.compile(r"audio/l16(?:;\s*rate=(\d{1,6}))?", re.IGNORECASE)
_TAG = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,8}")


_ERROR_FORM: dict[str, Any] = {
    "type": "object",
    "required": ["error", "code"],
    "properties": {"error": {"type": "string"}, "code": {"type": "string"}},
}


def error_response(failure: Failure) -> Response:
    """jambonz reads the status; the text is for its log."""
    return JSONResponse({"error": failure.message, "code": failure.code}, failure.status, failure.headers)


router = router_answering(error_response, _ERROR_FORM)


class SynthesizeBody(BaseModel):
    """What jambonz sends; unknown fields, such as its vendor, are ignored."""

    model_config = ConfigDict(extra="ignore")

    text: str
    """Plain or SSML."""
    type: Literal["text", "ssml"] = "text"
    """SSML is recognised by its first tag, so this is not needed."""
    voice: str | None = None
    language: str | None = None


@router.post(
    "/jambonz/synthesize",
    response_class=Response,
    responses=_AUDIO,
)
async def synthesize(
    body: SynthesizeBody,
    request: Request,
    format_: Annotated[Literal["mp3", "wav", "l16"] | None, Query(alias="format")] = None,
    rate: int | None = None,
    seed: Annotated[int | None, Query(ge=0, lt=1 << 64)] = None,
    accept: Annotated[str, Header()] = "",
) -> Response:
    """Speak a text. The format is that of the address (`?format=l16&rate=8000`), else what `accept`
    names first, else MP3.
    """
    chosen, sample_rate = audio_format(format_, rate, accept)
    speaker = speaker_of(request)
    encoder = file_encoder(chosen, sample_rate)
    options = SynthesisOptions(language_code=language_tag(body.language), sample_rate=sample_rate, seed=seed)
    utterance = await speaker.speak(body.text, body.voice or "", options)
    media_type = f"audio/l16;rate={sample_rate}" if chosen is FileFormat.PCM else chosen.media_type
    return AudioResponse(utterance, encoded(utterance, encoder), media_type, error_response, speaker.reader_seconds)


def audio_format(named: str | None, rate: int | None, accept: str) -> tuple[FileFormat, int]:
    """Format and rate in hertz. Raises InvalidRequest for a rate that jambonz does not have."""
    chosen = FileFormat.PCM if named == "l16" else FileFormat(named) if named else None
    for media_type in accept.split(","):
        if chosen is not None:
            break
        if accepted := _L16.match(media_type.strip()):
            chosen, rate = FileFormat.PCM, rate or int(accepted[1] or RATES[0])
        elif "wav" in media_type.lower():
            chosen = FileFormat.WAV
        elif "mpeg" in media_type.lower() or "mp3" in media_type.lower():
            chosen = FileFormat.MP3
    chosen = chosen or FileFormat.MP3
    rate = rate or (RATES[0] if chosen is FileFormat.PCM else SAMPLE_RATE)
    if rate not in RATES:
        raise InvalidRequest(f"rate is {rate}, allowed are {', '.join(map(str, RATES))}")
    return chosen, rate


def language_tag(language: str | None) -> str:
    """What jambonz calls a language as a BCP-47 tag; empty, by its script, for what is none."""
    tag = (language or "").replace("_", "-")
    return tag if _TAG.fullmatch(tag) and tag != "default" else ""
