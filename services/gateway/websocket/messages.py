"""The messages of `/v1/audio/stream` in both directions."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cosyserve.audio.encoding import Encoding
from cosyserve.client.options import SynthesisOptions
from cosyserve.client.types import Header, Summary, TextWarning, WordTime
from cosyserve.spec import SAMPLE_RATE
from services.gateway.speech.request_model import validated


class Setup(BaseModel):
    """The first message of each utterance. Unknown fields are an error, so that a misspelt one is
    noticed.
    """

    model_config = ConfigDict(extra="forbid")

    type: Literal["setup"]
    voice: str = ""
    audio: Literal["binary", "json"] = "binary"
    """Binary messages, or JSON with base64."""
    encoding: Encoding = Encoding.LINEAR16
    sample_rate: int = SAMPLE_RATE
    mode: Literal["sentences", "tokens"] = "sentences"
    speed: float = 1.0
    seed: Annotated[int, Field(ge=0, lt=1 << 64)] | None = None
    language: str = ""
    instructions: str = ""
    onset: Literal["trimmed", "natural"] | None = None
    max_sentence_characters: int = 0
    least_euler_steps: int = 0
    """Fewest Euler steps, 5 to 10, that a server near its limit may take; 0: always ten."""
    retry: bool = False
    buffer_delay_milliseconds: int = 0
    idle_timeout_milliseconds: int = 0
    traceparent: Annotated[str, Field(pattern="^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})?$")] = ""
    """W3C trace context that this utterance continues: browsers can give a WebSocket no headers."""
    api_key: str = Field("", repr=False)
    """For a caller that can give the WebSocket no headers."""

    def options(self) -> SynthesisOptions:
        """Without the voice."""
        return SynthesisOptions(
            encoding=self.encoding,
            sample_rate=self.sample_rate,
            speed=self.speed,
            seed=self.seed,
            language_code=self.language,
            instruction=self.instructions,
            onset=self.onset,
            max_sentence_characters=self.max_sentence_characters,
            least_euler_steps=self.least_euler_steps,
            retry=self.retry,
        )


class Text(BaseModel):
    """More text, in pieces of any length."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]
    text: str


class Command(BaseModel):
    """flush: speak what is there as if the sentence ended; cancel: stop at once; end: no more text
    comes.
    """

    model_config = ConfigDict(extra="forbid")

    type: Literal["flush", "cancel", "end"]


def read_setup(message: dict[str, Any]) -> Setup:
    """Raises InvalidRequest naming the field."""
    return validated(Setup, message)


def read_part(message: dict[str, Any]) -> Text | Command:
    """What follows a setup. Raises InvalidRequest naming the field."""
    return validated(Text, message) if message.get("type") == "text" else validated(Command, message)


def header_message(header: Header, trace_id: str) -> dict[str, object]:
    """The values in use, before the first audio. trace_id: empty if there is no trace."""
    return {
        "type": "header",
        "seed": header.seed,
        "voice": header.voice,
        "encoding": header.encoding,
        "sample_rate": header.sample_rate,
        "profile": header.profile,
        "onset": header.onset,
        "synthetic_audio": True,
        "trace_id": trace_id or None,
    }


def words_message(words: list[WordTime]) -> dict[str, object]:
    """Words and when they are spoken, in seconds from the beginning of the utterance."""
    spoken = [{"word": word.text, "start": word.start, "end": word.end, "sentence": word.sentence} for word in words]
    return {"type": "words", "words": spoken}


def warning_message(warning: TextWarning) -> dict[str, object]:
    """A part of the text that is not spoken as it is written."""
    return {
        "type": "warning",
        "kind": warning.kind,
        "message": warning.message,
        "left_out": list(warning.left_out),
        "sentence": warning.sentence,
    }


def summary_message(summary: Summary) -> dict[str, object]:
    """The last message of an utterance; milliseconds of each stage as measured by the server."""
    return {
        "type": "summary",
        "audio_seconds": summary.audio_seconds,
        "sentences": summary.sentences,
        "cancelled": summary.cancelled,
        "euler_steps": summary.euler_steps,
        "real_time_factor": summary.real_time_factor,
        "first_sound_milliseconds": summary.first_sound_milliseconds,
        "first_audible_milliseconds": summary.first_audible_milliseconds,
        "first_sound": summary.first_sound,
        "total": summary.total,
        "missing_word_times": [asdict(missing) for missing in summary.missing_word_times],
    }
