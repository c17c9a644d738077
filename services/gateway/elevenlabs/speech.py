"""POST /v1/text-to-speech/{voice_id}: a text spoken into a file of any format, streamed, with or
without the times of its characters.
"""

import base64
import contextlib
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from services.gateway.elevenlabs.alignment.characters import Alignment, CharacterTimes, SpokenText
from services.gateway.elevenlabs.error_detail import ERROR_FORM, error_response
from services.gateway.elevenlabs.output_format import (
    DEFAULT,
    MEDIA_TYPES,
    OutputFormat,
    Seed,
    VoiceSettings,
    options_of,
    read_output_format,
)
from services.gateway.elevenlabs.voices import voice_of
from services.gateway.speech.audio_response import BINARY, AudioResponse, Pieces
from services.gateway.speech.encoded_speech import encoded
from services.gateway.speech.refusals import router_answering
from services.gateway.speech.request_model import Lenient
from services.gateway.speech.speaking import Utterance, speaker_of

router = router_answering(error_response, ERROR_FORM)
_PATH = "/v1/text-to-speech/{voice_id}"
_JSON, _JSON_LINES = "application/json", "application/x-ndjson"
_AUDIO: dict[int | str, dict[str, Any]] = {200: {"content": dict.fromkeys(MEDIA_TYPES, BINARY)}}
_WHOLE: dict[int | str, dict[str, Any]] = {200: {"content": {_JSON: {"schema": {"type": "object"}}}}}
_LINES: dict[int | str, dict[str, Any]] = {200: {"content": {_JSON_LINES: {"schema": {"type": "string"}}}}}
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
    pieces = _whole(utterance, encoded(utterance, kind.encoder()), body.text)
    return _response(request, utterance, pieces, _JSON)


@router.post(_PATH + "/stream/with-timestamps", response_class=Response, responses=_LINES)
async def stream_speech_with_timestamps(
    voice_id: str, body: TextBody, request: Request, output_format: OutputFormatName = DEFAULT
) -> Response:
    """Speak a text into lines of JSON: a piece of audio each, with the characters whose times have
    become known.
    """
    kind = read_output_format(output_format)
    utterance = await _utterance(request, voice_id, body, kind)
    pieces = _lines(utterance, encoded(utterance, kind.encoder()), body.text)
    return _response(request, utterance, pieces, _JSON_LINES)


async def _utterance(request: Request, voice_id: str, body: TextBody, kind: OutputFormat) -> Utterance:
    speaker = speaker_of(request)
    options = options_of(body.voice_settings, kind, body.language_code, body.seed)
    return await speaker.speak(body.text, await voice_of(speaker.voices, voice_id), options)


def _response(request: Request, utterance: Utterance, pieces: Pieces, media_type: str) -> Response:
    return AudioResponse(utterance, pieces, media_type, error_response, speaker_of(request).reader_seconds)


async def _lines(utterance: Utterance, pieces: AsyncGenerator[bytes], text: str) -> AsyncGenerator[bytes]:
    """An object a line: a piece of the file as base64, and the characters whose times became known
    since the line before. Times count from the beginning of the utterance. What becomes known
    behind the audio is a line without any.
    """
    spoken = SpokenText(text)
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            yield _line(piece, spoken.news(utterance.speech.words))
    for alignment in (spoken.news(utterance.speech.words), spoken.rest()):
        if alignment is not None:
            yield _line(b"", alignment)


async def _whole(utterance: Utterance, pieces: AsyncGenerator[bytes], text: str) -> AsyncGenerator[bytes]:
    """One object, whose audio leaves as it is spoken; the times follow it."""
    spoken, written, normalized = SpokenText(text), CharacterTimes(), CharacterTimes()
    begun, held = False, b""
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            held += piece
            whole_bytes = len(held) // 3 * 3  # base64 can be continued only there
            part, held = held[:whole_bytes], held[whole_bytes:]
            yield (b"" if begun else b'{"audio_base64":"') + base64.b64encode(part)
            begun = True
    for alignment in (spoken.news(utterance.speech.words), spoken.rest()):
        if alignment is not None:
            written.extend(alignment.written)
            normalized.extend(alignment.spoken)
    known = bool(written.characters)
    end = {
        "alignment": written.in_seconds() if known else None,
        "normalized_alignment": normalized.in_seconds() if known else None,
    }
    yield (b"" if begun else b'{"audio_base64":"') + base64.b64encode(held) + b'",' + _json(end)[1:]


def _line(piece: bytes, alignment: Alignment | None) -> bytes:
    line = {
        "audio_base64": base64.b64encode(piece).decode(),
        "alignment": None if alignment is None else alignment.written.in_seconds(),
        "normalized_alignment": None if alignment is None else alignment.spoken.in_seconds(),
    }
    return _json(line) + b"\n"


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
