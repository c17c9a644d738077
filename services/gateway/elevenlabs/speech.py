"""POST /v1/text-to-speech/{voice_id}: a text spoken into a file of any format, streamed, with or
without the times of its characters.
"""

from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from services.gateway.elevenlabs import timestamps
from services.gateway.elevenlabs.error_detail import ERROR_FORM, error_response
from services.gateway.elevenlabs.output_format import DEFAULT, MEDIA_TYPES, OutputFormat, read_output_format
from services.gateway.elevenlabs.premade_voices import voice_of
from services.gateway.elevenlabs.voice_settings import Lenient, Seed, VoiceSettings, options_of
from services.gateway.speech.audio_response import BINARY, AudioResponse, Pieces
from services.gateway.speech.encoded_speech import encoded
from services.gateway.speech.refusals import router_answering
from services.gateway.speech.speaking import Utterance, speaker_of

router = router_answering(error_response, ERROR_FORM)
_PATH = "/v1/text-to-speech/{voice_id}"
_AUDIO: dict[int | str, dict[str, Any]] = {200: {"content": dict.fromkeys(MEDIA_TYPES, BINARY)}}
_WHOLE: dict[int | str, dict[str, Any]] = {200: {"content": {timestamps.WHOLE: {"schema": {"type": "object"}}}}}
_LINES: dict[int | str, dict[str, Any]] = {200: {"content": {timestamps.LINES: {"schema": {"type": "string"}}}}}
OutputFormatName = Annotated[str, Query(description="Codec, sample rate and bit rate, such as pcm_24000.")]


class TextBody(Lenient):
    """Of further fields of this API, `model_id`, `previous_text`, `next_text`, ids of requests,
    dictionaries and normalization have no counterpart here and are ignored.
    """

    text: str
    """The text, plain or SSML."""
    voice_settings: VoiceSettings = VoiceSettings()
    seed: Seed | None = None
    """Same request, same seed: the same samples."""
    language_code: str = ""
    """BCP-47 tag of the text; empty: by its script."""


@router.post(_PATH, response_class=Response, responses=_AUDIO)
@router.post(_PATH + "/stream", response_class=Response, responses=_AUDIO)
async def create_speech(
    voice_id: str, body: TextBody, request: Request, output_format: OutputFormatName = DEFAULT
) -> Response:
    """Speak a text; both addresses stream."""
    kind = read_output_format(output_format)
    utterance = await _utterance(request, voice_id, body, kind)
    return _response(request, utterance, encoded(utterance, kind.encoder()), kind.media_type)


@router.post(_PATH + "/with-timestamps", response_class=Response, responses=_WHOLE)
async def create_speech_with_timestamps(
    voice_id: str, body: TextBody, request: Request, output_format: OutputFormatName = DEFAULT
) -> Response:
    """Speak a text into one JSON object: audio as base64, and the times of its characters."""
    kind = read_output_format(output_format)
    utterance = await _utterance(request, voice_id, body, kind)
    pieces = timestamps.whole(utterance, encoded(utterance, kind.encoder()), body.text)
    return _response(request, utterance, pieces, timestamps.WHOLE)


@router.post(_PATH + "/stream/with-timestamps", response_class=Response, responses=_LINES)
async def stream_speech_with_timestamps(
    voice_id: str, body: TextBody, request: Request, output_format: OutputFormatName = DEFAULT
) -> Response:
    """Speak a text into lines of JSON: a piece of audio each, with the characters whose times have
    become known.
    """
    kind = read_output_format(output_format)
    utterance = await _utterance(request, voice_id, body, kind)
    pieces = timestamps.lines(utterance, encoded(utterance, kind.encoder()), body.text)
    return _response(request, utterance, pieces, timestamps.LINES)


async def _utterance(request: Request, voice_id: str, body: TextBody, kind: OutputFormat) -> Utterance:
    speaker = speaker_of(request)
    options = options_of(body.voice_settings, kind, body.language_code, body.seed)
    return await speaker.speak(body.text, await voice_of(speaker.voices, voice_id), options)


def _response(request: Request, utterance: Utterance, pieces: Pieces, media_type: str) -> Response:
    return AudioResponse(utterance, pieces, media_type, error_response, speaker_of(request).reader_seconds)
