"""POST /v1/audio/speech: a text spoken into a file of any format, streamed, also as server-sent
events: OpenAI's two kinds, and the words of each sentence as a third for clients that asked for
them.
"""

import base64
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from cosyserve.audio.compressed import FileFormat, file_encoder
from cosyserve.client.options import SynthesisOptions
from cosyserve.spec import SAMPLE_RATE
from services.gateway.openai.error_object import error_object, error_response
from services.gateway.speech.audio_response import AUDIO_CONTENT, AudioResponse
from services.gateway.speech.encoded_speech import encoded
from services.gateway.speech.failures import failure_of
from services.gateway.speech.request_model import Lenient
from services.gateway.speech.speaking import Utterance, speaker_of

router = APIRouter()
_LANGUAGES = {"auto": "", "chinese": "zh", "english": "en"}
"""Names of languages, as clients of other servers write them."""
EVENT_STREAM = "text/event-stream"
_DONE = b"data: [DONE]\n\n"


class NamedVoice(BaseModel):
    """A voice as an object, as OpenAI's clients name voices of one's own."""

    id: str


class SpeechBody(Lenient):
    """Fields that are null count as absent, unknown ones are ignored."""

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
        pieces, media_type = events(utterance, pieces, word_times=body.word_times), EVENT_STREAM
    return AudioResponse(utterance, pieces, media_type, error_response, speaker.reader_seconds)


async def events(utterance: Utterance, pieces: AsyncGenerator[bytes], *, word_times: bool) -> AsyncGenerator[bytes]:
    """`speech.audio.delta` for each piece of the file, `speech.audio.words` when words became known
    (word_times), `speech.audio.done`, and `[DONE]`, for which some clients wait. A failure before
    the first piece is raised; a later one is an event `error`, after which the stream is cut.
    """
    known = 0
    begun = False

    def words() -> bytes:
        nonlocal known
        first, known = known, len(utterance.speech.words)
        new = word_times and known > first
        return event({"type": "speech.audio.words", "words": _words(utterance, first)}) if new else b""

    try:
        async for piece in pieces:
            begun = True
            yield event({"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()})
            if spoken := words():
                yield spoken
    except Exception as error:
        if begun:
            yield event({"type": "error", **error_object(failure_of(error))})
        raise
    if spoken := words():
        yield spoken
    tokens = utterance.speech.summary.speech_tokens if utterance.speech.summary else 0
    usage = {"input_tokens": 0, "output_tokens": tokens, "total_tokens": tokens}
    yield event({"type": "speech.audio.done", "usage": usage})
    yield _DONE


def event(value: Mapping[str, object]) -> bytes:
    """One event: a line of JSON, then an empty line."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def _words(utterance: Utterance, first: int) -> list[dict[str, object]]:
    return [{"word": word.text, "start": word.start, "end": word.end} for word in utterance.speech.words[first:]]
