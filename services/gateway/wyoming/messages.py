"""What the events say: the server and its voices, what to speak, and audio."""

from collections.abc import Sequence
from typing import Any

from cosyserve.client.options import SynthesisOptions
from cosyserve.client.types import Chunk, VoiceLine
from cosyserve.errors import InvalidRequest
from cosyserve.rpc.service_info import release
from cosyserve.spec import SAMPLE_RATE
from services.gateway.speech.voice_names import VoiceNames
from services.gateway.wyoming.events import Event

_OTHER_DOMAINS = ("asr", "handle", "intent", "wake", "mic", "snd")
_LANGUAGES = ["en", "zh"]
"""Of a voice that names none: what the frontend reads."""
_AUDIO: dict[str, Any] = {"rate": SAMPLE_RATE, "width": 2, "channels": 1}
_TEXT_FORMATS = (None, "text", "ssml")


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
