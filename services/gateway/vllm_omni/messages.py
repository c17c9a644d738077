"""The messages of `/v1/audio/speech/stream` in both directions, as vLLM-Omni defines them."""

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, model_validator

from cosyserve.audio.compressed import FileFormat
from cosyserve.client.options import SynthesisOptions
from cosyserve.client.types import Prompt, WordTime
from cosyserve.errors import InvalidRequest
from cosyserve.spec import SAMPLE_RATE
from services.gateway.speech.failures import failure_of
from services.gateway.speech.request_model import Lenient, validated

_LANGUAGES = {"auto": "", "chinese": "zh", "english": "en", "japanese": "ja", "korean": "ko"}
_BYTES_PER_SECOND = 2 * SAMPLE_RATE


class SessionConfig(Lenient):
    """`session.config`: how the following utterances are spoken, until the next one. Null counts as
    absent; fields of other models (max_new_tokens, ...) and unknown ones are ignored.
    """

    voice: str = Field(default="", validation_alias=AliasChoices("voice", "speaker"))
    task_type: Literal["CustomVoice", "Base"] | None = None
    """VoiceDesign, a voice by its description, is of other models."""
    language: str = ""
    instructions: str = ""
    response_format: FileFormat = FileFormat.WAV
    speed: Annotated[float, Field(ge=0.5, le=2.0)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=1 << 64)] | None = None
    ref_audio: str = ""
    """A recording to speak like, as a data URL or its base64; addresses are not fetched."""
    ref_text: str = ""
    x_vector_only_mode: bool = False
    speaker_embedding: None = None
    stream_audio: bool = False
    """Binary messages while the audio is made, in place of one with the whole file."""
    word_timestamps: bool = False
    """JSON messages with base64 in place of binary ones, and the times of the words."""
    split_granularity: Literal["none", "sentence", "clause"] = "sentence"
    """none: an utterance is spoken when all of its text is there. Else each sentence is, as soon as
    it is complete.
    """

    @model_validator(mode="after")
    def _consistent(self) -> "SessionConfig":
        if self.word_timestamps and not (self.stream_audio and self.response_format is FileFormat.PCM):
            raise ValueError("word_timestamps=true needs stream_audio=true and response_format='pcm'")
        if self.ref_audio and self.voice:
            raise ValueError("voice and ref_audio are both set; an utterance is spoken like one of them")
        return self

    def options(self) -> SynthesisOptions:
        """Without the voice. Raises InvalidRequest for a recording that is no base64."""
        options = SynthesisOptions(
            speed=self.speed,
            seed=self.seed,
            language_code=_LANGUAGES.get(self.language.lower(), self.language),
            instruction=self.instructions,
        )
        if self.ref_audio:
            options["prompt"] = Prompt(_recording(self.ref_audio), "" if self.x_vector_only_mode else self.ref_text)
        if self.x_vector_only_mode:
            options["prompt_mode"] = "sft"
        return options


def read_config(message: dict[str, Any]) -> SessionConfig:
    """Raises InvalidRequest naming the field."""
    config = validated(SessionConfig, message, where="session.config", whole="")
    config.options()
    return config


def audio_start(utterance: int, text: str, config: SessionConfig) -> dict[str, object]:
    """Before the audio. text: of the utterance, as far as it had come."""
    message: dict[str, object] = {
        "type": "audio.start",
        "utterance_index": utterance,
        "sentence_index": 0,
        "sentence_text": text,
        "format": config.response_format,
        "sample_rate": SAMPLE_RATE,
        "channels": 1,
    }
    return message | ({"word_timestamps": True} if config.word_timestamps else {})


def audio_chunk(
    utterance: int, number: int, place: int, audio: bytes, timestamps: list[dict[str, object]] | None
) -> dict[str, object]:
    """place: bytes of samples before `audio`. timestamps: None with audio; behind it those of the
    whole utterance.
    """
    return {
        "type": "audio.chunk",
        "utterance_index": utterance,
        "sentence_index": 0,
        "chunk_id": number,
        "chunk_start_ms": _milliseconds(place) if audio else 0,
        "chunk_end_ms": _milliseconds(place + len(audio)),
        "sample_rate": SAMPLE_RATE,
        "channels": 1,
        "audio_b64": base64.b64encode(audio).decode(),
        "timestamps": timestamps,
    }


def audio_done(utterance: int, total_bytes: int, *, failed: bool) -> dict[str, object]:
    """Behind the audio, also of an utterance that failed."""
    return {
        "type": "audio.done",
        "utterance_index": utterance,
        "sentence_index": 0,
        "total_bytes": total_bytes,
        "error": failed,
    }


def session_done(utterance: int, spoken: int) -> dict[str, object]:
    """The utterance is over. spoken: 1, or 0 for one without text."""
    return {"type": "session.done", "utterance_index": utterance, "total_sentences": spoken}


def error_message(error: Exception) -> dict[str, object]:
    """The text is what the dialect has; code and the time of a retry are ours."""
    failure = failure_of(error)
    return {"type": "error", "message": failure.message, "code": failure.code, **failure.retry}


def timestamps_of(words: Sequence[WordTime]) -> list[dict[str, object]] | None:
    """None for a model without word times."""
    spoken: list[dict[str, object]] = [
        {"word": word.text, "start_ms": round(1000 * word.start), "end_ms": round(1000 * word.end)} for word in words
    ]
    return spoken or None


def _milliseconds(size: int) -> int:
    return round(1000 * size / _BYTES_PER_SECOND)


def _recording(reference: str) -> bytes:
    if "://" in reference:
        raise InvalidRequest("session.config: ref_audio is an address; send the recording itself, as a data URL")
    _, _, data = reference.rpartition(",") if reference.startswith("data:") else ("", "", reference)
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"session.config: ref_audio is no base64: {error}") from error
