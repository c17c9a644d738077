"""Speech with the times of its characters, as JSON that is written while it is spoken."""

import base64
import contextlib
import json
from collections.abc import AsyncGenerator, Mapping

from services.gateway.elevenlabs.alignment.characters import Alignment, CharacterTimes, SpokenText
from services.gateway.speech.speaking import Utterance

WHOLE = "application/json"
LINES = "application/x-ndjson"


async def lines(utterance: Utterance, pieces: AsyncGenerator[bytes], text: str) -> AsyncGenerator[bytes]:
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


async def whole(utterance: Utterance, pieces: AsyncGenerator[bytes], text: str) -> AsyncGenerator[bytes]:
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
