"""/inference_sft, _zero_shot, _cross_lingual and _instruct2: a text spoken by a speaker of the
server or like an uploaded recording.

CosyVoice's own client sends its forms by GET, other clients by POST.
"""

import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Form, Request, UploadFile
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from cosyserve.audio.compressed import FileFormat, file_encoder
from cosyserve.client.options import SynthesisOptions
from cosyserve.client.types import Prompt, PromptMode
from cosyserve.errors import InvalidRequest
from cosyserve.spec import SAMPLE_RATE
from services.gateway.cosyvoice.refusal import REFUSAL_FORM, UNPROCESSABLE, refusal
from services.gateway.speech.audio_response import BINARY, AudioResponse
from services.gateway.speech.encoded_speech import HeldAudio, encoded, whole_file
from services.gateway.speech.refusals import router_answering
from services.gateway.speech.speaking import Utterance, speaker_of

_END_OF_PROMPT = "<|endofprompt|>"
"""Callers of the reference append it to an instruction; the speech service appends it itself."""
router = router_answering(refusal, REFUSAL_FORM, UNPROCESSABLE)
_PIECE_BYTES = 1 << 20
_AUDIO: dict[int | str, dict[str, Any]] = {200: {"content": {"audio/pcm": BINARY, "audio/wav": BINARY}}}


def ranged(least: float, most: float) -> tuple[Any, Any]:
    """A form field of a number with a range, and the check that names the whole range."""

    def check(value: float | None) -> float | None:
        if value is not None and not least <= value <= most:
            raise PydanticCustomError("out_of_range", "allowed are {least} to {most}", {"least": least, "most": most})
        return value

    return Form(json_schema_extra={"minimum": least, "maximum": most}), AfterValidator(check)


_SPEED, _IN_SPEED = ranged(0.5, 2.0)
_CHARACTERS, _IN_CHARACTERS = ranged(10, 20_000)
_SEED, _IN_SEED = ranged(0, (1 << 64) - 1)


@dataclass(frozen=True)
class SpeechForm:
    """The fields of every form that speaks. A dependency of FastAPI."""

    tts_text: Annotated[str, Form()]
    """The text, plain or SSML."""
    format: Annotated[Literal["stream", "wav"], Form()] = "stream"
    """`stream`: samples without a header (signed 16-bit, 24 kHz, mono); `wav`: a whole file."""
    speed: Annotated[float, _SPEED, _IN_SPEED] = 1.0
    stream: Annotated[bool, Form()] = True
    """Whether samples are sent while later ones are still made; a file never is."""
    max_text_length: Annotated[int, _CHARACTERS, _IN_CHARACTERS] = 100
    """Characters of a sentence; a longer one is spoken in parts."""
    enable_smart_split: Annotated[bool, Form()] = True
    """Without it `max_text_length` does not apply."""
    seed: Annotated[int | None, _SEED, _IN_SEED] = None
    """Same form, same seed: the same samples."""

    def options(self) -> SynthesisOptions:
        """Without the voice."""
        return SynthesisOptions(
            speed=self.speed,
            seed=self.seed,
            max_sentence_characters=self.max_text_length if self.enable_smart_split else 0,
        )


async def prompted(
    options: SynthesisOptions, mode: PromptMode, recording: UploadFile | None, transcript: str, speaker: str
) -> None:
    """Add the voice of a request to its options: an uploaded recording, for this request alone, or
    a speaker of the server. Raises InvalidRequest unless there is exactly one.
    """
    options["prompt_mode"] = mode
    if (recording is None) == (not speaker):
        raise InvalidRequest("prompt_wav is the recording to speak like; give it, or spk_id in its place, and not both")
    if recording is not None:
        options["prompt"] = Prompt(await recording.read(), transcript)


def instruction(text: str) -> str:
    """The instruction without the mark of its end. Raises InvalidRequest for an empty one."""
    spoken_as = text.strip().removesuffix(_END_OF_PROMPT).strip()
    if not spoken_as:
        raise InvalidRequest("instruct_text is empty, allowed are 1 to 500 characters")
    return spoken_as


Fields = Annotated[SpeechForm, Depends()]


def inference(mode: str) -> Callable[[Any], Any]:
    """Serve a form by POST, and by GET, which is how CosyVoice's own client sends its forms."""

    def decorate(handler: Any) -> Any:
        path = f"/inference_{mode}"
        router.get(path, response_class=Response, responses=_AUDIO)(handler)
        return router.post(path, response_class=Response, responses=_AUDIO)(handler)

    return decorate


@inference("sft")
async def inference_sft(request: Request, fields: Fields, spk_id: Annotated[str, Form()] = "") -> Response:
    """Speak with a speaker of the server."""
    return await _spoken(request, fields, spk_id, fields.options())


@inference("zero_shot")
async def inference_zero_shot(
    request: Request,
    fields: Fields,
    prompt_text: Annotated[str, Form()] = "",
    prompt_wav: UploadFile | None = None,
    spk_id: Annotated[str, Form()] = "",
) -> Response:
    """Speak like a recording of which the transcript is given."""
    if prompt_wav is not None and not prompt_text.strip():
        raise InvalidRequest("prompt_text is empty; allowed are 1 to 1000 characters, the transcript of prompt_wav")
    options = fields.options()
    await prompted(options, "zero_shot", prompt_wav, prompt_text, spk_id)
    return await _spoken(request, fields, spk_id, options)


@inference("cross_lingual")
async def inference_cross_lingual(
    request: Request, fields: Fields, prompt_wav: UploadFile | None = None, spk_id: Annotated[str, Form()] = ""
) -> Response:
    """Speak like a recording, whatever language is spoken in it."""
    options = fields.options()
    await prompted(options, "cross_lingual", prompt_wav, "", spk_id)
    return await _spoken(request, fields, spk_id, options)


@inference("instruct2")
async def inference_instruct2(
    request: Request,
    fields: Fields,
    instruct_text: Annotated[str, Form()] = "",
    prompt_wav: UploadFile | None = None,
    spk_id: Annotated[str, Form()] = "",
) -> Response:
    """Speak like a recording and as instructed, with a model that follows instructions."""
    options = fields.options()
    options["instruction"] = instruction(instruct_text)
    await prompted(options, "instruct", prompt_wav, "", spk_id)
    return await _spoken(request, fields, spk_id, options)


@inference("instruct")
async def inference_instruct(
    request: Request,
    fields: Fields,
    instruct_text: Annotated[str, Form()] = "",
    spk_id: Annotated[str, Form()] = "",
) -> Response:
    """Speak with a speaker of the server and as instructed, with a model that follows that."""
    options = fields.options()
    options["instruction"] = instruction(instruct_text)
    return await _spoken(request, fields, spk_id, options)


async def _spoken(request: Request, fields: SpeechForm, speaker_id: str, options: SynthesisOptions) -> Response:
    speaker = speaker_of(request)
    utterance = await speaker.speak(fields.tts_text, speaker_id, options, needs_instructions=True)
    file_format = FileFormat.WAV if fields.format == "wav" else FileFormat.PCM
    if fields.format == "stream" and fields.stream:
        pieces = encoded(utterance, file_encoder(file_format))
        headers = None
    else:
        whole = WholeAnswer(utterance, file_format, request.app.state.held)
        pieces, headers = whole.pieces(), whole.headers
    return AudioResponse(utterance, pieces, file_format.media_type, refusal, speaker.reader_seconds, headers)


class WholeAnswer:
    """An answer that begins when all of it is made, so that headers say how long that took."""

    def __init__(self, utterance: Utterance, file_format: FileFormat, held: HeldAudio) -> None:
        self._utterance, self._file_format, self._held = utterance, file_format, held
        self._begun = time.monotonic()
        self._seconds = 0.0
        self._bytes = self._audio_bytes = 0

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The file, in pieces of about a megabyte: each has to be read in time."""
        with self._held.room() as room:
            parts = await whole_file(self._utterance, self._file_format, SAMPLE_RATE, room)
            self._bytes, self._audio_bytes = sum(map(len, parts)), room.bytes
            self._seconds = time.monotonic() - self._begun
            piece = b""
            for part in parts:
                piece += part
                if len(piece) >= _PIECE_BYTES:
                    yield piece
                    piece = b""
            yield piece

    def headers(self) -> dict[str, str]:
        """Known at the first piece."""
        audio_seconds = self._audio_bytes / (2 * SAMPLE_RATE)
        factor = self._seconds / audio_seconds if audio_seconds else 0.0
        return {
            **self._utterance.headers(),
            "content-length": str(self._bytes),
            "x-processing-time": f"{self._seconds:.3f}",
            "x-rtf": f"{factor:.4f}",
        }
