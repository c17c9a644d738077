"""/inference_sft, _zero_shot, _cross_lingual and _instruct2: a text spoken by a speaker of the
server or like an uploaded recording.

CosyVoice's own client sends its forms by GET, other clients by POST.
"""

import time
from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any

from fastapi import Depends, Form, Request, UploadFile
from starlette.responses import Response

from cosyserve.audio.compressed import FileFormat, file_encoder
from cosyserve.client.options import SynthesisOptions
from cosyserve.errors import InvalidRequest
from cosyserve.spec import SAMPLE_RATE
from services.gateway.cosyvoice.forms import SpeechForm, instruction, prompted
from services.gateway.cosyvoice.refusal import REFUSAL_FORM, UNPROCESSABLE, refusal
from services.gateway.speech.audio_response import BINARY, AudioResponse
from services.gateway.speech.encoded_speech import encoded
from services.gateway.speech.refusals import router_answering
from services.gateway.speech.speaking import Utterance, speaker_of
from services.gateway.speech.whole_file import HeldAudio, whole_file

router = router_answering(refusal, REFUSAL_FORM, UNPROCESSABLE)
_PIECE_BYTES = 1 << 20
_AUDIO: dict[int | str, dict[str, Any]] = {200: {"content": {"audio/pcm": BINARY, "audio/wav": BINARY}}}
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
