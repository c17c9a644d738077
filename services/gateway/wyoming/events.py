"""Events of Wyoming as bytes: a line of JSON with `type`, `data`, `data_length` and
`payload_length`, then as many bytes of JSON and of payload as it says
(https://github.com/OHF-Voice/wyoming).

Written here instead of taken from the package `wyoming`, whose reader bounds neither the data nor
the payload, and takes what is malformed for the end of the connection.

And what the events say: the server and its voices, what to speak, and audio.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cosyserve.client.options import SynthesisOptions
from cosyserve.client.types import Chunk, VoiceLine
from cosyserve.errors import InvalidRequest
from cosyserve.rpc.service_info import release
from cosyserve.spec import SAMPLE_RATE
from services.gateway.speech.request_model import require_flat
from services.gateway.speech.voice_names import VoiceNames

MOST_LINE_BYTES = MOST_DATA_BYTES = 1 << 18
"""Room for the longest text, each character escaped; older clients put the data in the line."""
MOST_PAYLOAD_BYTES = 1 << 20
"""No event that is served has a payload: it is read and dropped."""
_PIECE_BYTES = 1 << 16
_LONGEST_TYPE = 64
_OTHER_DOMAINS = ("asr", "handle", "intent", "wake", "mic", "snd")
_LANGUAGES = ["en", "zh"]
"""Of a voice that names none: what the frontend reads."""
_AUDIO: dict[str, Any] = {"rate": SAMPLE_RATE, "width": 2, "channels": 1}
_TEXT_FORMATS = (None, "text", "ssml")


@dataclass(frozen=True)
class Event:
    """data: a JSON object. payload: of audio-chunk, s16le."""

    type: str
    data: dict[str, Any] = field(default_factory=dict)
    payload: bytes = b""

    def to_bytes(self) -> bytes:
        """As it travels."""
        head: dict[str, Any] = {"type": self.type}
        data = json.dumps(self.data, ensure_ascii=False).encode() if self.data else b""
        if data:
            head["data_length"] = len(data)
        if self.payload:
            head["payload_length"] = len(self.payload)
        return json.dumps(head).encode() + b"\n" + data + self.payload


async def read_event(reader: asyncio.StreamReader, seconds: float) -> Event | None:
    """The next event without its payload; None when the caller has hung up. Waits for its first
    byte without a limit, for the rest for `seconds`. reader: with a limit of MOST_LINE_BYTES.

    Raises InvalidRequest for what is no event, too long or too slow.
    """
    first = await reader.read(1)
    if not first:
        return None
    try:
        async with asyncio.timeout(seconds):
            return await _rest(first, reader)
    except TimeoutError as error:
        raise InvalidRequest(f"an event did not arrive within {seconds:g} s") from error
    except asyncio.IncompleteReadError:
        return None


async def _rest(first: bytes, reader: asyncio.StreamReader) -> Event:
    try:
        line = first if first == b"\n" else first + await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError as error:
        raise InvalidRequest(f"the line of an event has more than the {MOST_LINE_BYTES} bytes allowed") from error
    head = _object(line, "the line of an event")
    kind = head.get("type")
    if not isinstance(kind, str) or not 1 <= len(kind) <= _LONGEST_TYPE:
        raise InvalidRequest(f"type is missing or no text of 1 to {_LONGEST_TYPE} characters")
    data = head.get("data") or {}
    if not isinstance(data, dict):
        raise InvalidRequest(f"data of {kind!r} is no JSON object")
    if length := _length(head, "data_length", MOST_DATA_BYTES):
        data = data | _object(await reader.readexactly(length), f"the data of {kind!r}")
    left = _length(head, "payload_length", MOST_PAYLOAD_BYTES)
    while left:
        left -= len(await reader.readexactly(min(left, _PIECE_BYTES)))
    return Event(kind, data)


def _length(head: dict[str, Any], name: str, most: int) -> int:
    length = head.get(name)
    if length is None:
        return 0
    if not isinstance(length, int) or isinstance(length, bool) or not 0 <= length <= most:
        raise InvalidRequest(f"{name} is {str(length)[:32]}, allowed are 0 to {most}")
    return length


def _object(encoded: bytes, what: str) -> dict[str, Any]:
    try:
        require_flat(encoded, what)
        value = json.loads(encoded)
        # Half of a surrogate pair is no character, and could not be sent on.
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError as error:
        raise InvalidRequest(f"{what} is not JSON") from error
    if not isinstance(value, dict):
        raise InvalidRequest(f"{what} is no JSON object but {type(value).__name__}")
    return value


def info(voices: Sequence[VoiceLine]) -> Event:
    """The answer to `describe`."""
    program = {
        **_artifact("cosyserve", "Streaming text-to-speech", release()),
        "voices": [
            _artifact(voice.id, voice.display_name or voice.id, None)
            | {"languages": [voice.language_code] if voice.language_code else _LANGUAGES}
            for voice in voices
        ],
        "supports_synthesize_streaming": True,
    }
    return Event("info", {"tts": [program], **{domain: [] for domain in _OTHER_DOMAINS}})


def text_of(event: Event) -> str:
    """The text of `synthesize` or `synthesize-chunk`. Raises InvalidRequest."""
    text = event.data.get("text")
    if not isinstance(text, str):
        raise InvalidRequest(f"text of {event.type} is missing or no text")
    return text


async def options_of(event: Event, voices: VoiceNames) -> SynthesisOptions:
    """Voice, language and seed that `synthesize` or `synthesize-start` asks for. A voice is chosen
    by name, else by language. Raises InvalidRequest.
    """
    if event.data.get("text_format") not in _TEXT_FORMATS:
        raise InvalidRequest(f"text_format of {event.type} is none of text, ssml")
    voice = event.data.get("voice") or {}
    if not isinstance(voice, dict):
        raise InvalidRequest(f"voice of {event.type} is no JSON object")
    name, language = (_text(voice, field, event) for field in ("name", "language"))
    options = SynthesisOptions(language_code=language.replace("_", "-"))
    options["voice"] = await (voices.voice_of(name) if name or not language else voices.voice_speaking(language))
    seed = event.data.get("seed")
    if seed is not None:
        if not isinstance(seed, int) or not 0 <= seed < 1 << 64:
            raise InvalidRequest(f"seed of {event.type} is no whole number from 0 to 2^64 - 1")
        options["seed"] = seed
    return options


def _text(voice: dict[str, Any], field: str, event: Event) -> str:
    value = voice.get(field) or ""
    if not isinstance(value, str):
        raise InvalidRequest(f"voice.{field} of {event.type} is no text")
    return value


def audio_start() -> Event:
    """In front of the first chunk."""
    return Event("audio-start", _AUDIO | {"timestamp": 0})


def audio_chunk(chunk: Chunk) -> Event:
    """24 kHz, 16 bit, mono; the time of its first sample in milliseconds."""
    return Event("audio-chunk", _AUDIO | {"timestamp": 1000 * chunk.start_sample // SAMPLE_RATE}, chunk.audio)


def _artifact(name: str, description: str, version: str | None) -> dict[str, Any]:
    attribution = {"name": "cosyserve", "url": ""}
    return {
        "name": name,
        "attribution": attribution,
        "installed": True,
        "description": description,
        "version": version,
    }
