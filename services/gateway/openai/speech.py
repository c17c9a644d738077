"""POST /v1/audio/speech: a text spoken into a file of any format, streamed."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.responses import Response

from cosyserve.audio.compressed import FileFormat, file_encoder
from cosyserve.client.options import SynthesisOptions
from cosyserve.spec import SAMPLE_RATE
from services.gateway.openai import events
from services.gateway.openai.error_object import error_response
from services.gateway.speech.audio_response import AUDIO_CONTENT, AudioResponse
from services.gateway.speech.encoded_speech import encoded
from services.gateway.speech.speaking import speaker_of

router = APIRouter()
_LANGUAGES = {"auto": "", "chinese": "zh", "english": "en"}
"""Names of languages, as clients of other servers write them."""


class NamedVoice(BaseModel):
    """A voice as an object, as OpenAI's clients name voices of one's own."""

    id: str


class SpeechBody(BaseModel):
    """Fields that are null count as absent, unknown ones are ignored."""

    model_config = ConfigDict(extra="ignore")

    input: str
    """The text, plain or SSML."""
    model: str = ""
    """Ignored: a server has one model."""
    voice: str | NamedVoice = ""
    """A voice of this server or a name of OpenAI's voices; empty: the default voice."""
    instructions: str = ""
    """How to speak, for a model that follows instructions; others ignore it."""
    response_format: FileFormat = FileFormat.MP3
    speed: float = 1.0
    stream_format: Literal["audio", "sse"] = "audio"
    seed: Annotated[int, Field(ge=0, lt=1 << 64)] | None = None
    """Same request, same seed: the same samples."""
    language: str = ""
    """BCP-47 tag of the text, or a name such as English; empty: by its script."""
    sample_rate: Annotated[int, Field(ge=8_000, le=48_000)] = SAMPLE_RATE
    """Samples per second, 8000 to 48000, as far as the format has the rate."""
    onset: Literal["trimmed", "natural"] | None = None
    """Whether silence at both ends is removed."""
    max_sentence_characters: Annotated[int, Field(ge=0, le=20_000)] = 0
    """Longest sentence, 10 to 20000 characters; a longer one is spoken in parts. 0: no limit."""
    least_euler_steps: Annotated[int, Field(ge=0, le=10)] = 0
    """Fewest Euler steps, 5 to 10, that a server near its limit may take; 0: always ten."""
    retry: bool = False
    """Whether a sentence whose speech fails a check is spoken once more."""
    word_times: bool = False
    """With `stream_format` sse: events with the words and their times."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        return (
            {name: value for name, value in values.items() if value is not None} if isinstance(values, dict) else values
        )

    @property
    def voice_name(self) -> str:
        return self.voice if isinstance(self.voice, str) else self.voice.id

    def options(self) -> SynthesisOptions:
        """Without the voice."""
        return SynthesisOptions(
            instruction=self.instructions,
            speed=self.speed,
            seed=self.seed,
            language_code=_LANGUAGES.get(self.language.lower(), self.language),
            sample_rate=self.sample_rate,
            onset=self.onset,
            max_sentence_characters=self.max_sentence_characters,
            least_euler_steps=self.least_euler_steps,
            retry=self.retry,
        )


@router.post(
    "/v1/audio/speech",
    response_class=Response,
    responses={200: {"content": {**AUDIO_CONTENT, "text/event-stream": {"schema": {"type": "string"}}}}},
)
async def create_speech(body: SpeechBody, request: Request) -> Response:
    """Speak a text."""
    speaker = speaker_of(request)
    encoder = file_encoder(body.response_format, body.sample_rate)
    utterance = await speaker.speak(body.input, body.voice_name, body.options())
    pieces = encoded(utterance, encoder)
    media_type = body.response_format.media_type
    if body.stream_format == "sse":
        pieces, media_type = events.events(utterance, pieces, word_times=body.word_times), events.MEDIA_TYPE
    return AudioResponse(utterance, pieces, media_type, error_response, speaker.reader_seconds)
