"""The gRPC methods that read what a request contains in addition to its text: a recording to clone,
speech to convert, an instruction. Nothing of them is stored, and only lengths and the language
reach a trace.
"""

import time
from functools import partial
from typing import Any

import grpc

from cosyserve import telemetry
from cosyserve.errors import FailedPrecondition
from cosyserve.telemetry import Timing
from cosyserve.v1 import frontend_pb2 as pb
from services.frontend.prompts.instruction import instruction_ids
from services.frontend.prompts.prompt_recording import PromptRecording
from services.frontend.prompts.recorded_voices import RecordedVoices
from services.frontend.prompts.recording_reader import RecordingReader
from services.frontend.recordings.decoding import kind_of
from services.frontend.text.text_scheduler import Caller, TextScheduler
from services.frontend.tokenizers.tokenizer import Tokenizer
from services.frontend.voice_servicer import traced, voice_message

Context = grpc.aio.ServicerContext[Any, Any]


class PromptMethods:
    """ReadRecording, ReadSpeech and ReadInstruction of FrontendService.

    reader: None when recordings cannot be read. cache_bytes: as in `RecordedVoices`. scheduler:
    runs the text work.
    """

    def __init__(
        self, reader: RecordingReader | None, cache_bytes: int, tokenizer: Tokenizer, scheduler: TextScheduler
    ) -> None:
        self._reader = reader
        self._recorded = None if reader is None else RecordedVoices(reader, cache_bytes)
        self._tokenizer = tokenizer
        self._scheduler = scheduler

    async def ReadRecording(self, request: pb.ReadRecordingRequest, context: Context) -> pb.ReadRecordingResponse:
        start = time.time_ns()
        upload = request.recording
        recording = PromptRecording(upload.audio, upload.transcript, upload.language_code, upload.cut_prompt)
        recording.require_readable()
        if self._recorded is None:
            raise _no_prompt_networks()
        voice = await self._recorded.voice(recording)
        telemetry.record(Timing("frontend.read_recording", start, time.time_ns(), traced(recording, voice)))
        return pb.ReadRecordingResponse(voice=voice_message(voice))

    async def ReadSpeech(self, request: pb.ReadSpeechRequest, context: Context) -> pb.ReadSpeechResponse:
        start = time.time_ns()
        kind_of(request.audio)
        if self._reader is None:
            raise _no_prompt_networks()
        with self._reader.slot():
            tokens = await self._reader.speech_tokens(request.audio)
        telemetry.record(Timing("frontend.read_speech", start, time.time_ns(), {"speech.tokens": len(tokens)}))
        return pb.ReadSpeechResponse(speech_tokens=tokens)

    async def ReadInstruction(self, request: pb.ReadInstructionRequest, context: Context) -> pb.ReadInstructionResponse:
        start = time.time_ns()
        ids = await self._scheduler.run(Caller(), partial(instruction_ids, request.instruction, self._tokenizer))
        attributes: dict[str, int | float | str] = {
            "instruction.characters": len(request.instruction),
            "instruction.ids": len(ids),
        }
        telemetry.record(Timing("frontend.read_instruction", start, time.time_ns(), attributes))
        return pb.ReadInstructionResponse(token_ids=ids)


def _no_prompt_networks() -> FailedPrecondition:
    return FailedPrecondition(
        "no recording can be read: the model directory has no speech tokenizer or no speaker encoder"
    )
