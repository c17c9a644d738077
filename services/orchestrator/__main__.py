"""`python -m services.orchestrator`: the public service; it calls the three stages at the addresses
of its settings. `--insecure`: COSYSERVE_ORCHESTRATOR_INSECURE=true.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from cosyserve import settings as environment
from cosyserve.errors import SettingsError
from cosyserve.rpc.replicas import ReplicaSet
from cosyserve.rpc.server import Close, Service, run
from cosyserve.rpc.service_info import ServiceFacts, libraries, limits_of
from cosyserve.tasks import cancel_all
from cosyserve.v1 import synthesis_pb2_grpc
from services.orchestrator.access.gate import AccessGate, UsageByKey
from services.orchestrator.adapters import serve_adapters
from services.orchestrator.aligning.workers import PACKAGE, AlignerWorkers
from services.orchestrator.faults.hedging import Hedging
from services.orchestrator.faults.quarantine import Quarantine
from services.orchestrator.faults.retry_budget import RetryBudget
from services.orchestrator.load_control.adaptive_limit import LimitUpdater
from services.orchestrator.load_control.entrance import OwnEntrance
from services.orchestrator.pipeline import Stages
from services.orchestrator.processes import parent
from services.orchestrator.processes.member import Member, is_member
from services.orchestrator.servicer import SynthesisServicer, own_entrance
from services.orchestrator.settings import PREFIX, OrchestratorSettings
from services.orchestrator.stages.failover import RetryPolicy
from services.orchestrator.stages.frontend import FrontendStage
from services.orchestrator.stages.info import StageInfo
from services.orchestrator.stages.llm import LlmStage
from services.orchestrator.stages.prompt_cut import PromptCut
from services.orchestrator.stages.prompt_grid import PromptGrid
from services.orchestrator.stages.token2wav import Token2WavStage
from services.orchestrator.stages.voice_contents import VoiceContents
from services.orchestrator.stages.voices import VoiceStage
from services.orchestrator.voice_warming import VoiceWarming

SERVICE = "cosyserve.v1.SynthesisService"
_INSECURE = "--insecure"
_SERVICES = {"frontend": "FrontendService", "llm": "LlmService", "token2wav": "Token2WavService"}

_LIMITS = (
    "max_streams",
    "max_characters",
    "max_stream_characters",
    "max_stream_seconds",
    "idle_seconds",
    "max_unary_seconds",
    "max_request_seconds",
    "max_message_bytes",
    "max_connections",
    "max_streams_per_connection",
    "max_incoming_messages",
    "first_message_seconds",
)


async def load(service: Service, settings: OrchestratorSettings) -> Close:
    """Open the channels; from now on the health of `service` is that of its stages."""
    member = await Member.join(service) if is_member() else None
    changed = asyncio.Event()
    notified: list[Callable[[], None]] = [changed.set]

    def on_change() -> None:
        for notify in notified:
            notify()

    replica_sets = [_replicas(stage, settings, on_change) for stage in _SERVICES]
    frontend, llm, token2wav = replica_sets
    quarantine = Quarantine(settings.quarantine_engines, settings.quarantine_seconds)

    def policy(stage: ReplicaSet) -> RetryPolicy:
        budget = RetryBudget(stage.stage, settings.retry_share, settings.retries_per_second)
        return RetryPolicy(settings.stall_seconds, settings.recovery_seconds, settings.attempts, budget, quarantine)

    grid = PromptGrid(token2wav, settings.prompt_as_block)
    texts, hedging = policy(frontend), Hedging(settings.hedge_share)
    reading = replace(texts, stall_seconds=settings.voice_seconds)
    cut = PromptCut()
    notified.append(lambda: cut.changed(token2wav.serving_replicas()))
    stages = Stages(
        FrontendStage(frontend, texts, hedging),
        VoiceStage(frontend, texts, reading, VoiceContents(settings.voices_cache_bytes), hedging, cut=cut),
        LlmStage(llm, policy(llm), settings.guards, lambda: grid.as_block, cut),
        Token2WavStage(token2wav, policy(token2wav), settings.guards, cut),
        AlignerWorkers.installed(settings.word_aligners, settings.word_wait_seconds),
    )
    own = None if member is not None else own_entrance(settings)
    servicer = SynthesisServicer(stages, settings, quarantine, own if member is None else member.entrance)
    synthesis_pb2_grpc.add_SynthesisServiceServicer_to_server(servicer, service.handlers)  # type: ignore[arg-type]
    serve_adapters(service, servicer)

    asked = StageInfo(replica_sets)
    service.info.describe(
        ServiceFacts(
            limits=limits_of(settings, *_LIMITS) | {"word_aligners": float(stages.aligners.count)},
            libraries=libraries(PACKAGE),
        ),
        asked.warm_up,
        asked.ask,
        admit=servicer.admitted_warm_up,
        admitted=lambda: (servicer.entrance.occupancy.limit, servicer.entrance.occupancy.active),
    )

    async def follow_health() -> None:
        while True:
            changed.clear()
            serving = all(replicas.serving for replicas in replica_sets)
            await service.set_serving(serving)
            if member is not None:
                member.say_health(serving=serving)
            await changed.wait()

    warming = VoiceWarming(stages.voices, stages.token2wav, settings.warm_voices)
    # The model is forgotten first: the warming asks for voices again.
    notified += [stages.voices.model.forget, warming.changed, grid.changed]
    tasks = [asyncio.create_task(each) for each in (follow_health(), warming.run(), grid.run())]
    if own is not None and settings.adaptive_limit != "off":
        watch = _limit_updater(own, [llm, token2wav], settings)
        notified.append(watch.changed)
        tasks.append(asyncio.create_task(watch.run()))

    async def close() -> None:
        await cancel_all(tasks)
        if member is not None:
            await member.close()
        await stages.aligners.close()
        for replicas in replica_sets:
            await replicas.close()

    return close


async def follow_load(entrance: OwnEntrance, settings: OrchestratorSettings) -> Close:
    """Admit fewer requests where the stages cannot keep up, in a process that serves no call."""
    if settings.adaptive_limit == "off":
        return _nothing
    notified: list[Callable[[], None]] = []

    def on_change() -> None:
        for notify in notified:
            notify()

    replica_sets = [_replicas(stage, settings, on_change) for stage in ("llm", "token2wav")]
    watch = _limit_updater(entrance, replica_sets, settings)
    notified.append(watch.changed)
    watching = asyncio.create_task(watch.run())

    async def close() -> None:
        await cancel_all([watching])
        for replicas in replica_sets:
            await replicas.close()

    return close


def _gate(settings: OrchestratorSettings) -> AccessGate | None:
    gate = settings.gate()
    if gate is not None and settings.processes > 1:
        gate.usage = UsageByKey(os.getpid())
    return gate


async def _nothing() -> None:
    return None


def _replicas(stage: str, settings: OrchestratorSettings, on_change: Callable[[], None]) -> ReplicaSet:
    return ReplicaSet(
        stage,
        f"cosyserve.v1.{_SERVICES[stage]}",
        getattr(settings, stage),
        settings.max_message_bytes,
        on_change,
        settings.calls,
        settings.breakers,
        look_up_seconds=settings.look_up_seconds,
    )


def _limit_updater(
    entrance: OwnEntrance, replica_sets: Sequence[ReplicaSet], settings: OrchestratorSettings
) -> LimitUpdater:
    loads = partial(StageInfo(replica_sets).loads, everywhere=settings.adaptive_limit == "on")
    return LimitUpdater(entrance.streams, loads)


def main() -> int:
    """Serve until SIGTERM; returns the exit status (cosyserve.rpc.server)."""
    if unknown := [argument for argument in sys.argv[1:] if argument != _INSECURE]:
        sys.stderr.write(f"{unknown[0]} is no argument; known: {_INSECURE}; everything else is a variable {PREFIX}*\n")
        return 2
    if _INSECURE in sys.argv:
        os.environ[f"{PREFIX}INSECURE"] = "true"
    if not is_member():
        try:
            settings = environment.load(OrchestratorSettings, PREFIX, os.environ)
            if settings.processes > 1:
                settings.gate()  # keys that cannot be used are said once
                return parent.run(settings, own_entrance, follow_load)
        except SettingsError as error:
            sys.stderr.write(f"{error}\n")
            return 2
    return run(
        SERVICE,
        PREFIX,
        OrchestratorSettings,
        lambda settings: partial(load, settings=settings),
        owns_health=True,
        gate=_gate,
        parts=lambda settings: settings.processes,
    )


if __name__ == "__main__":
    sys.exit(main())
