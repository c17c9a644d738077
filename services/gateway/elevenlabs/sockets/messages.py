"""The query and the messages of both WebSockets."""

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from cosyserve.errors import InvalidRequest
from cosyserve.keys.secret import bearer_of
from services.gateway.elevenlabs.alignment.characters import Alignment
from services.gateway.elevenlabs.output_format import DEFAULT, Seed, VoiceSettings
from services.gateway.speech.request_model import Lenient, validated

LONGEST_IDLE_SECONDS = 180.0
_COMMANDS = {"flush", "close_context", "close_socket", "context_id"}
_KEYS = {"xi_api_key", "authorization"}


class SocketQuery(Lenient):
    """Parameters of the address. `model_id` and the others of this API are ignored."""

    output_format: str = DEFAULT
    language_code: str = ""
    inactivity_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 20.0
    """Seconds without a message after which a context ends; more than 180 count as 180."""
    auto_mode: bool = False
    """A message that ends in a sentence's end is spoken at once."""
    sync_alignment: bool = False
    """Times count from the beginning of the context, not from the alignment before."""
    seed: Seed | None = None
    """Of every context without one of its own."""
    mode: Literal["sentences", "tokens"] = "sentences"
    """A parameter of our own: whether speech begins before a sentence is complete."""

    @property
    def idle_seconds(self) -> float:
        return min(self.inactivity_timeout, LONGEST_IDLE_SECONDS)


class GenerationConfig(Lenient):
    """`chunk_length_schedule` is accepted and ignored: a sentence is spoken when it is complete."""

    seed: Seed | None = None


class Received(Lenient):
    """A message of a caller. Fields of this API that are missing here are ignored."""

    text: str | None = None
    context_id: Annotated[str, Field(max_length=128)] | None = None
    flush: bool = False
    close_context: bool = False
    close_socket: bool = False
    voice_settings: VoiceSettings | None = None
    generation_config: GenerationConfig = GenerationConfig()
    xi_api_key: str = Field("", repr=False)
    """Key of the caller, in its first message."""
    authorization: str = Field("", repr=False)
    """The same as `Bearer KEY`."""

    @property
    def key(self) -> str:
        """The key that came with it; empty if none did."""
        return self.xi_api_key.strip() or bearer_of(self.authorization)

    @property
    def settings(self) -> VoiceSettings | None:
        """How to speak; None: the message says nothing about it."""
        if self.generation_config.seed is None:
            return self.voice_settings
        return (self.voice_settings or VoiceSettings()).model_copy(update={"seed": self.generation_config.seed})


def read_query(parameters: Mapping[str, str]) -> SocketQuery:
    """Raises InvalidRequest naming the parameter."""
    return validated(SocketQuery, parameters)


def read_message(message: dict[str, Any]) -> Received:
    """Raises InvalidRequest naming the field. The SDK writes `contextId` in some versions."""
    if "contextId" in message:
        message = {"context_id": message["contextId"], **message}
    received = validated(Received, message)
    if received.text is None and received.settings is None and not message.keys() & (_COMMANDS | _KEYS):
        raise InvalidRequest(f"a message has `text`, or one of {', '.join(sorted(_COMMANDS))}")
    return received


def audio_message(audio: bytes, alignment: Alignment | None, since: int) -> dict[str, object]:
    """A piece of audio, and the characters whose times became known. since: as in
    `CharacterTimes.in_milliseconds`.
    """
    return {
        "audio": base64.b64encode(audio).decode(),
        "isFinal": False,
        "alignment": None if alignment is None else alignment.written.in_milliseconds(since),
        "normalizedAlignment": None if alignment is None else alignment.spoken.in_milliseconds(since),
    }


def final_message() -> dict[str, object]:
    """The last message of a context."""
    return {"audio": "", "isFinal": True, "alignment": None, "normalizedAlignment": None}
