"""Client of the frontend for voices, recordings and instructions."""

import asyncio

from cosyserve import telemetry
from cosyserve.errors import InternalFault
from cosyserve.rpc.replicas import ReplicaSet
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1 import voice_pb2
from services.orchestrator.speech.conditioning import Conditioning, Prompting, Recording, Voice, condition
from services.orchestrator.stages.failover import RetryPolicy
from services.orchestrator.stages.voices import ask


class PromptStage:
    """Every call is repeated on another replica when one fails."""

    def __init__(self, replicas: ReplicaSet, policy: RetryPolicy, reading: RetryPolicy) -> None:
        """reading: as `policy`, for the analysis of a recording."""
        self.replicas = replicas
        self._policy = policy
        self._reading = reading

    async def conditioning(self, prompting: Prompting) -> Conditioning:
        """The conditioning of the networks. Raises FailedPrecondition if the voice or the model
        lacks what is asked for, NotFound if there is no such voice, InvalidRequest for an unusable
        recording or instruction.
        """
        async with asyncio.TaskGroup() as group:
            voice = group.create_task(
                self.voice(prompting.voice) if prompting.recording is None else self.recording(prompting.recording)
            )
            instruction = group.create_task(self.instruction(prompting.instruction)) if prompting.instruction else None
        return condition(
            voice.result(), prompting.mode, () if instruction is None else instruction.result(), prompting.allowed
        )

    async def voice(self, name: str) -> Voice:
        """The voice `name` with its content; NotFound if there is none."""
        request = pb.GetVoiceRequest(id=name)
        answer = await ask(
            self.replicas, self._policy, lambda stub: stub.GetVoice(request, metadata=telemetry.outgoing())
        )
        return _voice(answer.voice)

    async def recording(self, recording: Recording) -> Voice:
        """The voice of a recording. Raises Overloaded, with a retry hint, if no frontend can
        analyze another recording now.
        """
        message = voice_pb2.PromptRecording(
            audio=recording.audio,
            transcript=recording.transcript,
            language_code=recording.language_code,
            cut_prompt=recording.cut_prompt,
        )
        request = pb.ReadRecordingRequest(recording=message)
        answer = await ask(
            self.replicas, self._reading, lambda stub: stub.ReadRecording(request, metadata=telemetry.outgoing())
        )
        return _voice(answer.voice)

    async def instruction(self, text: str) -> tuple[int, ...]:
        """The text ids of an instruction; FailedPrecondition if the model supports none."""
        request = pb.ReadInstructionRequest(instruction=text)
        answer = await ask(
            self.replicas, self._policy, lambda stub: stub.ReadInstruction(request, metadata=telemetry.outgoing())
        )
        return tuple(answer.token_ids)

    async def speech(self, audio: bytes) -> tuple[int, ...]:
        """The speech tokens, 25 per second, of the bytes of a sound file. Raises Overloaded as
        `recording` does.
        """
        request = pb.ReadSpeechRequest(audio=audio)
        answer = await ask(
            self.replicas, self._reading, lambda stub: stub.ReadSpeech(request, metadata=telemetry.outgoing())
        )
        if not answer.speech_tokens:
            raise InternalFault("the frontend read no speech token out of a recording")
        return tuple(answer.speech_tokens)


def _voice(message: voice_pb2.Voice) -> Voice:
    return Voice(
        id=message.id,
        content_hash=message.content_hash,
        prompt_text_ids=tuple(message.prompt_text_ids),
        prompt_speech_tokens=tuple(message.prompt_speech_tokens),
        prompt_mel=message.prompt_mel,
        speaker_embedding=message.speaker_embedding,
    )
