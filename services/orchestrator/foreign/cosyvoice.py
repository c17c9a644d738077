"""The contract of CosyVoice's own gRPC server on top of our own service."""

from cosyserve.audio.wav import wav_header
from cosyserve.errors import InvalidRequest
from cosyserve.foreign import cosyvoice_pb2 as cosyvoice
from cosyserve.foreign import cosyvoice_pb2_grpc
from cosyserve.v1 import synthesis_pb2 as pb
from cosyserve.v1 import voice_pb2
from services.orchestrator.foreign.native_call import (
    FEMALE,
    MALE,
    Context,
    KnownVoices,
    NativeService,
    first_of,
    is_sound_file,
    translating,
)

SPEAKERS = {
    "中文女": FEMALE,
    "中文男": MALE,
    "英文女": FEMALE,
    "英文男": MALE,
    "日语男": MALE,
    "粤语女": FEMALE,
    "韩语女": FEMALE,
}
"""Names of the speakers of CosyVoice-300M-SFT, which CosyVoice's client asks for."""
_PROMPT_RATE = 16_000
_END_OF_PROMPT = "<|endofprompt|>"
"""Callers of the reference append it to an instruction; our service appends it itself."""


class CosyVoiceServicer(cosyvoice_pb2_grpc.CosyVoiceServicer):
    """service: our own, in this process."""

    def __init__(self, service: NativeService) -> None:
        self._service, self._voices = service, KnownVoices(service)

    async def Inference(  # type: ignore[override]
        self, request: cosyvoice.Request, context: Context
    ) -> None:
        async def write(response: pb.SynthesizeResponse) -> None:
            if response.audio:
                await context.write(cosyvoice.Response(tts_audio=response.audio))

        native = await translated(request, self._voices, context)
        await self._service.Synthesize(native, translating(context, write))


async def translated(request: cosyvoice.Request, known: KnownVoices, context: Context) -> pb.SynthesizeRequest:
    """Raises InvalidRequest, and what listing the voices raises."""
    kind = request.WhichOneof("RequestPayload")
    if kind == "sft_request":
        sft = request.sft_request
        return pb.SynthesizeRequest(text=sft.tts_text, voice=await _voice(sft.spk_id, known, context))
    if kind == "zero_shot_request":
        zero_shot = request.zero_shot_request
        if not zero_shot.prompt_text.strip():
            raise InvalidRequest(
                "zero_shot_request.prompt_text is empty; expected the transcript of prompt_audio, 1 to 1000 characters"
            )
        prompt = voice_pb2.PromptRecording(audio=_file(kind, zero_shot.prompt_audio), transcript=zero_shot.prompt_text)
        return pb.SynthesizeRequest(text=zero_shot.tts_text, prompt=prompt, prompt_mode=pb.PROMPT_MODE_ZERO_SHOT)
    if kind == "cross_lingual_request":
        cross = request.cross_lingual_request
        prompt = voice_pb2.PromptRecording(audio=_file(kind, cross.prompt_audio))
        return pb.SynthesizeRequest(text=cross.tts_text, prompt=prompt, prompt_mode=pb.PROMPT_MODE_CROSS_LINGUAL)
    if kind == "instruct_request":
        instruct = request.instruct_request
        instruction = instruct.instruct_text.strip().removesuffix(_END_OF_PROMPT).strip()
        if not instruction:
            raise InvalidRequest("instruct_request.instruct_text is empty, allowed are 1 to 500 characters")
        voice = await _voice(instruct.spk_id, known, context)
        return pb.SynthesizeRequest(text=instruct.tts_text, voice=voice, instruction=instruction)
    raise InvalidRequest(
        "the request carries nothing; expected sft_request, zero_shot_request, cross_lingual_request or "
        "instruct_request"
    )


async def _voice(speaker: str, known: KnownVoices, context: Context) -> str:
    """A name of CosyVoice's that no voice has is the first voice of that sex."""
    sex = SPEAKERS.get(speaker)
    if sex is None:
        return speaker
    voices = await known.seen(context)
    return speaker if any(voice.id == speaker for voice in voices) else first_of(voices, sex)


def _file(kind: str, audio: bytes) -> bytes:
    """The recording as a file: CosyVoice's client sends samples without a header."""
    if not audio:
        raise InvalidRequest(f"{kind}.prompt_audio is empty, expected 1 to 30 s of 16-bit samples at {_PROMPT_RATE} Hz")
    if is_sound_file(audio):
        return audio
    if len(audio) % 2:
        raise InvalidRequest(f"{kind}.prompt_audio has {len(audio)} bytes, expected whole 16-bit samples")
    return wav_header(_PROMPT_RATE, len(audio) // 2) + audio
