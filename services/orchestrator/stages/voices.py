"""Client of the frontend for voices, recordings and instructions."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import grpc

from cosyserve import telemetry
from cosyserve.errors import CosyserveError, FailedPrecondition, InternalFault, NotFound
from cosyserve.rpc.calls import answer
from cosyserve.rpc.deadlines import for_stage
from cosyserve.rpc.replicas import Replica, ReplicaSet
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1 import frontend_pb2_grpc, voice_pb2
from services.orchestrator.access.caller import current_call
from services.orchestrator.faults.hedging import Hedging, first_answer
from services.orchestrator.speech.conditioning import (
    Conditioning,
    Prompting,
    Recording,
    Voice,
    condition,
    refuse_spoken_instruction,
)
from services.orchestrator.stages.failover import RetryPolicy, StallTimer, call_with_failover
from services.orchestrator.stages.frontend import frontend_stub
from services.orchestrator.stages.prompt_cut import PromptCut
from services.orchestrator.stages.voice_contents import VoiceContents, VoiceQuestion, read_voice

Answer = TypeVar("Answer")


@dataclass
class ServedModel:
    """What the frontends' answers show of the model that they serve."""

    has_system_part: bool | None = None
    """None: no frontend has answered with a voice since `forget`."""

    def forget(self) -> None:
        """Call when the health of a stage changes: what comes up may serve another model."""
        self.has_system_part = None


@dataclass(frozen=True)
class VoiceStage:
    """Every call is repeated on another replica if one fails: all of them share the voices. The
    voices are those that are there for the caller of the current call.
    """

    replicas: ReplicaSet
    policy: RetryPolicy
    reading: RetryPolicy
    """As `policy`, for the analysis of a recording."""
    contents: VoiceContents
    hedging: Hedging = field(default_factory=Hedging)
    """Of calls that only read voices and texts; a recording takes too long to be analyzed twice."""
    model: ServedModel = field(default_factory=ServedModel)
    cut: PromptCut = field(default_factory=PromptCut)
    """That of the decoder, by which voices are described."""

    def require_supported(self, prompting: Prompting) -> None:
        """Raises InvalidRequest, without a call, for an instruction that the model would speak, if
        an earlier answer has shown that it would. `conditioning` raises it for the first request.
        """
        if prompting.by_token and prompting.instruction and self.model.has_system_part is False:
            refuse_spoken_instruction()

    def question(self, prompting: Prompting) -> VoiceQuestion | None:
        """Asks for the voice together with a text; None for a recording in place of a voice."""
        return self._question(prompting.voice) if prompting.recording is None else None

    async def conditioning(self, prompting: Prompting, asked: VoiceQuestion | None = None) -> Conditioning:
        """The conditioning of the networks. asked: the question for the voice, if the frontend that
        analyzes the text answers it. Raises FailedPrecondition if the voice or the model lacks what
        is asked for, NotFound if there is no such voice, InvalidRequest for an unusable recording
        or instruction.
        """
        instruction: tuple[int, ...] = ()
        if prompting.instruction:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self.instruction(prompting.instruction))
                voice = await self._prompted(prompting, asked)
            instruction = reading.result()
        else:
            voice = await self._prompted(prompting, asked)
        return condition(voice, prompting.mode, instruction, prompting.allowed, by_token=prompting.by_token)

    async def _prompted(self, prompting: Prompting, asked: VoiceQuestion | None) -> Voice:
        if prompting.recording is not None:
            return await self.recording(prompting.recording)
        response = None if asked is None else await asked.answer()
        if asked is None or response is None:  # a frontend of an earlier release answers the text alone
            return await self.voice(prompting.voice)
        return self._shown(response, self.contents.voice(asked, response))

    async def voice(self, name: str) -> Voice:
        """The voice `name` with its content; NotFound if there is none."""
        question = self._question(name)
        try:
            response = await self._ask(lambda stub: stub.GetVoice, question.request, hedged="GetVoice")
        except NotFound:
            self.contents.missing(question)
            raise
        return self._shown(response, self.contents.voice(question, response))

    def _question(self, name: str) -> VoiceQuestion:
        return self.contents.question(name, current_call().caller.scope)

    async def recording(self, recording: Recording) -> Voice:
        """The voice of a recording. Raises Overloaded, with a retry hint, if no frontend can
        analyze another recording now.
        """
        given = voice_pb2.PromptRecording(
            audio=recording.audio,
            transcript=recording.transcript,
            language_code=recording.language_code,
            cut_prompt=recording.cut_prompt,
        )
        request = pb.ReadRecordingRequest(recording=given)
        response = await self._ask(lambda stub: stub.ReadRecording, request, self.reading)
        return self._shown(response, read_voice(response))

    async def instruction(self, text: str) -> tuple[int, ...]:
        """The text ids of an instruction; FailedPrecondition if the model supports none."""
        response = await self._ask(
            lambda stub: stub.ReadInstruction, pb.ReadInstructionRequest(instruction=text), hedged="ReadInstruction"
        )
        return tuple(response.token_ids)

    async def speech(self, audio: bytes, most_rate: float) -> tuple[tuple[int, ...], float]:
        """The speech tokens of the bytes of a sound file, and their rate, at most `most_rate` (at
        least 1): 25 * rate are a second. Raises Overloaded as `recording` does.
        """
        request = pb.ReadSpeechRequest(audio=audio, most_rate=most_rate)
        response = await self._ask(lambda stub: stub.ReadSpeech, request, self.reading)
        if not response.speech_tokens:
            raise InternalFault("the frontend read no speech token out of a recording")
        return tuple(response.speech_tokens), response.rate or 1.0

    async def page(self, size: int, token: str) -> pb.FrontendServiceListVoicesResponse:
        """A page of the voices, the token of the next page, and the model."""
        tenant = current_call().caller.scope
        request = pb.FrontendServiceListVoicesRequest(page_size=size, page_token=token, tenant=tenant)
        return await self._ask(lambda stub: stub.ListVoices, request, hedged="ListVoices")

    async def describe(self, voice_id: str) -> voice_pb2.VoiceDetails:
        """The details of a voice; NotFound if there is none."""
        request = pb.DescribeVoiceRequest(
            id=voice_id, tenant=current_call().caller.scope, first_hop_tokens=self.cut.first_hop_tokens
        )
        return (await self._ask(lambda stub: stub.DescribeVoice, request, hedged="DescribeVoice")).voice

    async def create(self, draft: voice_pb2.VoiceDraft) -> voice_pb2.VoiceDetails:
        """Create a voice. The draft needs an id and a request_id, so that a second attempt returns
        the voice that the first one created. Raises FailedPrecondition if a frontend of an earlier
        release made it everyone's, and deletes it.
        """
        owner = current_call().caller.owner
        request = pb.FrontendServiceCreateVoiceRequest(
            draft=draft, owner=owner, first_hop_tokens=self.cut.first_hop_tokens
        )
        made = (await self._ask(lambda stub: stub.CreateVoice, request, self.reading)).voice
        if made.summary.owner != owner:
            with contextlib.suppress(CosyserveError):
                await self.delete(made.summary.id, everywhere=True)
            raise FailedPrecondition("a frontend of an earlier release knows no owners of voices; update it first")
        return made

    async def update(
        self, voice_id: str, metadata: voice_pb2.VoiceMetadata, fields: Sequence[str]
    ) -> voice_pb2.VoiceDetails:
        """Change the metadata of a voice: `fields` of `metadata`, all if none is named."""
        tenant = current_call().caller.scope
        request = pb.FrontendServiceUpdateVoiceRequest(
            id=voice_id, metadata=metadata, tenant=tenant, first_hop_tokens=self.cut.first_hop_tokens
        )
        request.update_mask.paths.extend(fields)
        return (await self._ask(lambda stub: stub.UpdateVoice, request)).voice

    async def delete(self, voice_id: str, *, everywhere: bool = False) -> None:
        """Delete a voice; NotFound if there is none. everywhere: whether it may be a voice of any
        tenant.
        """
        tenant = None if everywhere else current_call().caller.scope
        request, tries = pb.FrontendServiceDeleteVoiceRequest(id=voice_id, tenant=tenant), 0

        async def attempt(replica: Replica, _: StallTimer) -> None:
            nonlocal tries
            tries += 1
            try:
                await answer(
                    frontend_stub(replica).DeleteVoice(request, metadata=telemetry.outgoing(), timeout=for_stage())
                )
            except grpc.aio.AioRpcError as error:
                # The replica that failed before may have deleted it.
                if tries == 1 or error.code() != grpc.StatusCode.NOT_FOUND:
                    raise

        await call_with_failover(self.replicas, self.policy, attempt)
        self.contents.deleted(voice_id)

    def _shown(self, response: pb.GetVoiceResponse | pb.ReadRecordingResponse, voice: Voice) -> Voice:
        self.model.has_system_part = bool(response.system_text_ids)
        return voice

    async def _ask(
        self,
        method: "Callable[[frontend_pb2_grpc.FrontendServiceAsyncStub], Callable[..., Awaitable[Answer]]]",
        request: object,
        policy: RetryPolicy | None = None,
        hedged: str = "",
    ) -> Answer:
        """The response to `request` from one replica of the frontend, and from another one if that
        fails (`call_with_failover`). hedged: name of a method that may be hedged.
        """
        answers: list[Answer] = []

        async def ask(replica: Replica) -> Answer:
            call = method(frontend_stub(replica))
            return await answer(call(request, metadata=telemetry.outgoing(), timeout=for_stage()))

        async def attempt(replica: Replica, _: StallTimer) -> None:
            if not hedged:
                answers.append(await ask(replica))
                return
            async with first_answer(self.hedging, self.replicas, replica, hedged, ask) as first:
                answers.append(first)

        await call_with_failover(self.replicas, policy or self.policy, attempt)
        return answers[0]
