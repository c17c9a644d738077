"""`python -m services.orchestrator`: the public service; it calls the three stages at the addresses
of its settings.
"""

import asyncio
import sys
from functools import partial

from cosyserve.rpc.process import run
from cosyserve.rpc.replicas import ReplicaSet
from cosyserve.rpc.server import Close, Service
from cosyserve.rpc.service_info import ServiceFacts, libraries, limits_of
from cosyserve.v1 import synthesis_pb2_grpc
from services.orchestrator.load_control.adaptive_limit import LimitUpdater
from services.orchestrator.pipeline import Stages
from services.orchestrator.servicer import SynthesisServicer
from services.orchestrator.settings import PREFIX, OrchestratorSettings
from services.orchestrator.stages.failover import RetryPolicy
from services.orchestrator.stages.frontend import FrontendStage
from services.orchestrator.stages.info import StageInfo
from services.orchestrator.stages.llm import LlmStage
from services.orchestrator.stages.token2wav import Token2WavStage
from services.orchestrator.stages.voices import PromptStage, VoiceStage
from services.orchestrator.voice_warming import VoiceWarming

SERVICE = "cosyserve.v1.SynthesisService"

_DOOR_LIMITS = (
    "max_request_seconds",
    "max_message_bytes",
    "max_connections",
    "max_streams_per_connection",
    "max_incoming_messages",
    "first_message_seconds",
)


async def load(service: Service, settings: OrchestratorSettings) -> Close:
    """Open the channels; from now on the health of `service` is that of its stages."""
    changed = asyncio.Event()
    warming: VoiceWarming | None = None
    watch: LimitUpdater | None = None

    def on_change() -> None:
        changed.set()
        if warming is not None:
            warming.changed()
        if watch is not None:
            watch.changed()

    replica_sets = [
        ReplicaSet(stage, f"cosyserve.v1.{name}", getattr(settings, stage), settings.max_message_bytes, on_change)
        for stage, name in (("frontend", "FrontendService"), ("llm", "LlmService"), ("token2wav", "Token2WavService"))
    ]
    frontend, llm, token2wav = replica_sets
    policy = RetryPolicy(settings.stall_seconds, settings.recovery_seconds, settings.attempts)
    reading = RetryPolicy(settings.voice_seconds, settings.recovery_seconds, settings.attempts)
    stages = Stages(
        FrontendStage(frontend, policy),
        PromptStage(frontend, policy, reading),
        LlmStage(llm, policy, settings.guards),
        Token2WavStage(token2wav, policy, settings.guards),
    )
    voices = VoiceStage(frontend, policy, reading)
    servicer = SynthesisServicer(stages, voices, settings)
    synthesis_pb2_grpc.add_SynthesisServiceServicer_to_server(servicer, service.handlers)  # type: ignore[arg-type]

    asked = StageInfo(replica_sets)
    names = (
        "max_streams",
        "max_characters",
        "max_stream_characters",
        "max_stream_seconds",
        "idle_seconds",
        "max_unary_seconds",
    )
    service.info.describe(
        ServiceFacts(limits=limits_of(settings, *names, *_DOOR_LIMITS), libraries=libraries()),
        asked.warm_up,
        asked.ask,
    )
    service.info.admit(servicer.admission.admit)
    service.info.measure(admitted=lambda: (servicer.admission.limit, servicer.admission.active))

    async def follow_health() -> None:
        while True:
            changed.clear()
            await service.set_serving(all(replicas.serving for replicas in replica_sets))
            await changed.wait()

    warming = VoiceWarming(stages.prompts, voices, stages.token2wav, settings.warm_voices)
    tasks = [asyncio.create_task(follow_health()), asyncio.create_task(warming.run())]
    engines = StageInfo([llm, token2wav])
    if settings.adaptive_limit != "off":
        watch = LimitUpdater(servicer.admission, partial(engines.loads, everywhere=settings.adaptive_limit == "on"))
        tasks.append(asyncio.create_task(watch.run()))

    async def close() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for replicas in replica_sets:
            await replicas.close()

    return close


def main() -> int:
    """Serve until SIGTERM; returns the exit status (cosyserve.rpc.process)."""
    return run(
        SERVICE, PREFIX, OrchestratorSettings, lambda settings: partial(load, settings=settings), owns_health=True
    )


if __name__ == "__main__":
    sys.exit(main())
