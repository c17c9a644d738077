"""The frontend as the pipeline calls it: text to sentences, and voices by name."""

from collections.abc import Awaitable, Callable
from typing import cast

from cosyserve import telemetry
from cosyserve.channel import Replica, ReplicaSet
from cosyserve.v1 import frontend_pb2, frontend_pb2_grpc
from services.orchestrator.takeover import Patience, Pulse, carried_on, hung_up
from services.orchestrator.utterance import Sentence, Utterance, Voice


class FrontendStage:
    """Every call is repeated on another replica when one fails."""

    def __init__(self, replicas: ReplicaSet, patience: Patience) -> None:
        self.replicas = replicas
        self._patience = patience

    async def analyze(self, utterance: Utterance, take: Callable[[Sentence], Awaitable[None]]) -> int:
        """Hand the sentences of the text to `take`, each once and in order. Returns the number of takeovers."""
        setup = frontend_pb2.AnalyzeSetup(language_code=utterance.language_code)
        request = frontend_pb2.AnalyzeRequest(setup=setup, text=utterance.text)
        taken = 0

        async def attempt(replica: Replica, pulse: Pulse) -> None:
            nonlocal taken
            with hung_up(_stub(replica).Analyze(request, metadata=telemetry.outgoing())) as call:
                async for response in call:
                    pulse.beat()
                    if response.sentence.index == taken:
                        taken += 1
                        with pulse.paused():
                            await take(Sentence(response.sentence.index, tuple(response.sentence.token_ids)))

        return await carried_on(self.replicas, self._patience, attempt)

    async def voice(self, name: str) -> Voice:
        """The voice `name` with its content; NotFound when there is none."""
        response = frontend_pb2.GetVoiceResponse()

        async def attempt(replica: Replica, _: Pulse) -> None:
            request = frontend_pb2.GetVoiceRequest(id=name)
            response.CopyFrom(await _stub(replica).GetVoice(request, metadata=telemetry.outgoing()))

        await carried_on(self.replicas, self._patience, attempt)
        found = response.voice
        return Voice(
            id=found.id,
            content_hash=found.content_hash,
            prompt_text_ids=tuple(found.prompt_text_ids),
            prompt_speech_tokens=tuple(found.prompt_speech_tokens),
            prompt_mel=found.prompt_mel,
            speaker_embedding=found.speaker_embedding,
        )


def _stub(replica: Replica) -> "frontend_pb2_grpc.FrontendServiceAsyncStub":
    return cast("frontend_pb2_grpc.FrontendServiceAsyncStub", frontend_pb2_grpc.FrontendServiceStub(replica.channel))
