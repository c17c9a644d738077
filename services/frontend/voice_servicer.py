"""The gRPC methods that manage voices and that read what a request contains in addition to its
text: a recording to clone, speech to convert, an instruction. Only lengths and the language reach a
log or a trace.
"""

import asyncio
import base64
import binascii
import contextlib
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import grpc

from cosyserve import telemetry
from cosyserve.errors import FailedPrecondition, InvalidRequest
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.generation import Generation
from cosyserve.generations.prompt_cut import cut_for
from cosyserve.spec import CHUNK_TOKENS
from cosyserve.tasks import retrieve_error
from cosyserve.telemetry import Timing
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1 import voice_pb2
from services.frontend.prompts.instruction import instruction_ids
from services.frontend.prompts.recording_reader import Draft, PromptRecording, RecordedVoices, RecordingReader
from services.frontend.recordings.decoding import kind_of
from services.frontend.text.language import traced_language
from services.frontend.text.text_scheduler import Caller, TextScheduler
from services.frontend.tokenizers.tokenizer import Tokenizer
from services.frontend.voices.system_part import SystemPart
from services.frontend.voices.voice import Details, Voice, VoiceSummary, cut_of, tokens_before_sound
from services.frontend.voices.voice_library import VoiceLibrary
from services.frontend.voices.voice_notes import Labels, require_length

log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
_PAGE, _MOST_PAGE = 100, 1000
_LONGEST_OWNER = 128
_NO_RECORDING = "no recording can be read: the model directory has no speech tokenizer or no speaker encoder"


class VoiceMethods:
    """The methods of FrontendService for voices, recordings and instructions.

    reader: None when recordings cannot be read. cache_bytes: as in `RecordedVoices`. scheduler:
    runs the text work. system: of the model; None: one of CosyVoice2.
    """

    def __init__(
        self,
        library: VoiceLibrary,
        reader: RecordingReader | None,
        cache_bytes: int,
        tokenizer: Tokenizer,
        scheduler: TextScheduler,
        system: SystemPart | None = None,
    ) -> None:
        self._library = library
        self._reader = reader
        self._recorded = None if reader is None else RecordedVoices(reader, cache_bytes)
        self._tokenizer = tokenizer
        self._scheduler = scheduler
        self._system = system
        self._system_ids = () if system is None else system.ids
        self._generation = COSYVOICE2 if system is None else system.generation

    async def GetVoice(self, request: pb.GetVoiceRequest, context: Context) -> pb.GetVoiceResponse:
        return await self._shown(request)

    async def _shown(self, request: pb.GetVoiceRequest) -> pb.GetVoiceResponse:
        """The voice, without the content that the caller has. Raises as `VoiceLibrary.voice`."""
        voice = await self._library.voice(request.id, _tenant(request))
        known = request.known_content_hash == voice.content_hash
        message = voice_pb2.Voice(id=voice.id, content_hash=voice.content_hash) if known else _voice_message(voice)
        return pb.GetVoiceResponse(voice=message, system_text_ids=self._system_ids, content_known=known)

    @contextlib.contextmanager
    def _shown_beside(self, request: pb.AnalyzeRequest) -> Iterator["asyncio.Task[pb.GetVoiceResponse] | None"]:
        """The voice that a text asks for, which is read while the block runs; None: it asks for
        none.
        """
        if not request.HasField("voice"):
            yield None
            return
        reading = asyncio.create_task(self._shown(request.voice))
        reading.add_done_callback(retrieve_error)
        try:
            yield reading
        finally:
            reading.cancel()

    async def DescribeVoice(self, request: pb.DescribeVoiceRequest, context: Context) -> pb.DescribeVoiceResponse:
        _require_first_hop(request.first_hop_tokens)
        details = await self._library.details(request.id, _tenant(request))
        return pb.DescribeVoiceResponse(voice=self._details(details, request.first_hop_tokens))

    async def ListVoices(
        self, request: pb.FrontendServiceListVoicesRequest, context: Context
    ) -> pb.FrontendServiceListVoicesResponse:
        if not 0 <= request.page_size <= _MOST_PAGE:
            raise InvalidRequest(f"page_size is {request.page_size}, allowed 0 to {_MOST_PAGE}")
        lines, last = await self._library.page(request.page_size or _PAGE, _after(request.page_token), _tenant(request))
        token = base64.urlsafe_b64encode(last.encode()).decode()
        return pb.FrontendServiceListVoicesResponse(
            voices=map(_summary_message, lines), next_page_token=token, model=self._generation.name
        )

    def _details(self, details: Details, first_hop_tokens: int) -> voice_pb2.VoiceDetails:
        return _details_message(details, self._generation, first_hop_tokens)

    async def CreateVoice(
        self, request: pb.FrontendServiceCreateVoiceRequest, context: Context
    ) -> pb.FrontendServiceCreateVoiceResponse:
        require_length("owner", request.owner, _LONGEST_OWNER)
        _require_first_hop(request.first_hop_tokens)
        draft = _draft(request.draft).checked()
        details = await self._library.require_room(draft.id, draft.request_id, request.owner)
        if details is None:
            if self._reader is None:
                raise FailedPrecondition(
                    "no voice can be made: the model directory has no speech tokenizer or no speaker encoder"
                )
            with self._reader.slot():
                start = time.time_ns()
                voice = await self._reader.voice(draft.id, draft.recording)
                telemetry.record(Timing("frontend.make_voice", start, time.time_ns(), _traced(draft.recording, voice)))
                details = await self._library.add(draft.stored(voice), draft.labels, request.owner)
        return pb.FrontendServiceCreateVoiceResponse(voice=self._details(details, request.first_hop_tokens))

    async def UpdateVoice(
        self, request: pb.FrontendServiceUpdateVoiceRequest, context: Context
    ) -> pb.FrontendServiceUpdateVoiceResponse:
        labels, fields = _labels(request.metadata), tuple(request.update_mask.paths)
        Labels().changed(labels, fields)
        _require_first_hop(request.first_hop_tokens)
        details = await self._library.relabel(request.id, labels, fields, _tenant(request))
        return pb.FrontendServiceUpdateVoiceResponse(voice=self._details(details, request.first_hop_tokens))

    async def DeleteVoice(
        self, request: pb.FrontendServiceDeleteVoiceRequest, context: Context
    ) -> pb.FrontendServiceDeleteVoiceResponse:
        await self._library.remove(request.id, _tenant(request))
        return pb.FrontendServiceDeleteVoiceResponse()

    async def ReadRecording(self, request: pb.ReadRecordingRequest, context: Context) -> pb.ReadRecordingResponse:
        start = time.time_ns()
        upload = request.recording
        recording = PromptRecording(upload.audio, upload.transcript, upload.language_code, upload.cut_prompt)
        recording.require_readable()
        if self._recorded is None:
            raise FailedPrecondition(_NO_RECORDING)
        voice = await self._recorded.voice(recording)
        telemetry.record(Timing("frontend.read_recording", start, time.time_ns(), _traced(recording, voice)))
        return pb.ReadRecordingResponse(voice=_voice_message(voice), system_text_ids=self._system_ids)

    async def ReadSpeech(self, request: pb.ReadSpeechRequest, context: Context) -> pb.ReadSpeechResponse:
        start = time.time_ns()
        kind_of(request.audio)
        if self._reader is None:
            raise FailedPrecondition(_NO_RECORDING)
        with self._reader.slot():
            read = await self._reader.speech_tokens(request.audio, request.most_rate)
        telemetry.record(Timing("frontend.read_speech", start, time.time_ns(), {"speech.tokens": len(read.tokens)}))
        return pb.ReadSpeechResponse(speech_tokens=read.tokens, rate=read.rate)

    async def ReadInstruction(self, request: pb.ReadInstructionRequest, context: Context) -> pb.ReadInstructionResponse:
        start = time.time_ns()
        ids = await self._scheduler.run(
            Caller(), partial(instruction_ids, request.instruction, self._tokenizer, self._system)
        )
        telemetry.record(
            Timing(
                "frontend.read_instruction",
                start,
                time.time_ns(),
                {"instruction.characters": len(request.instruction), "instruction.ids": len(ids)},
            )
        )
        return pb.ReadInstructionResponse(token_ids=ids)


def _tenant(
    request: pb.GetVoiceRequest
    | pb.DescribeVoiceRequest
    | pb.FrontendServiceListVoicesRequest
    | pb.FrontendServiceUpdateVoiceRequest
    | pb.FrontendServiceDeleteVoiceRequest,
) -> str | None:
    return request.tenant if request.HasField("tenant") else None


def _require_first_hop(tokens: int) -> None:
    if not 0 <= tokens <= CHUNK_TOKENS:
        raise InvalidRequest(f"first_hop_tokens is {tokens}, allowed 0 to {CHUNK_TOKENS}")


def _after(page_token: str) -> str:
    try:
        return base64.b64decode(page_token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise InvalidRequest(f"page_token is {page_token[:64]!r}, which no earlier page returned") from error


def _draft(message: voice_pb2.VoiceDraft) -> Draft:
    return Draft(
        id=message.id,
        recording=PromptRecording(message.audio, message.transcript, message.language_code, message.cut_prompt),
        provenance=message.provenance,
        labels=_labels(message.metadata),
        request_id=message.request_id,
    )


def _labels(message: voice_pb2.VoiceMetadata) -> Labels:
    return Labels(message.display_name, message.description, dict(message.labels))


def _traced(recording: PromptRecording, voice: Voice) -> dict[str, int | float | str]:
    """The trace attributes of a recording: lengths and language."""
    return {
        "voice.prompt_seconds": voice.prompt_seconds,
        "voice.transcript_characters": len(recording.transcript),
        "text.language": traced_language(recording.language_code),
    }


def _voice_message(voice: Voice) -> voice_pb2.Voice:
    """The protobuf message of a voice, arrays included."""
    return voice_pb2.Voice(
        id=voice.id,
        content_hash=voice.content_hash,
        prompt_text_ids=voice.prompt_text_ids,
        prompt_speech_tokens=voice.prompt_speech_tokens,
        prompt_mel=voice.prompt_mel,
        speaker_embedding=voice.speaker_embedding,
    )


def _summary_message(summary: VoiceSummary) -> voice_pb2.VoiceSummary:
    message = voice_pb2.VoiceSummary(
        id=summary.id,
        content_hash=summary.content_hash,
        prompt_seconds=summary.prompt_seconds,
        is_default=summary.is_default,
        is_preset=summary.is_preset,
        language_code=summary.language_code,
        display_name=summary.labels.display_name,
        labels=summary.labels.labels,
        owner=summary.owner,
    )
    if summary.created:
        try:
            message.create_time.FromJsonString(summary.created)
        except ValueError:
            # An earlier release or a model may have written it. One such voice must not hide all
            # others.
            log.warning("a voice has a creation time that cannot be read; it is left out")
    return message


def _details_message(details: Details, generation: Generation, first_hop_tokens: int) -> voice_pb2.VoiceDetails:
    message = voice_pb2.VoiceDetails(
        summary=_summary_message(details.summary),
        description=details.summary.labels.description,
        transcript=details.transcript,
        provenance=details.provenance,
    )
    if prompt_tokens := details.voice.decoder_tokens:
        for field, held in (
            ("tokens_before_sound", prompt_tokens),
            ("tokens_before_sound_if_cut", prompt_tokens - cut_of(prompt_tokens, generation)),
        ):
            setattr(message, field, tokens_before_sound(held - cut_for(held, first_hop_tokens), generation))
    return message
