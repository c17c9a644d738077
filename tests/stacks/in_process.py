"""Services in this process on loopback, and a real orchestrator in front of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve.rpc.server import Close, ServerSettings, Service, running
from cosyserve.rpc.service_info import ServiceFacts
from cosyserve.v1 import frontend_pb2_grpc, llm_pb2_grpc, token2wav_pb2_grpc
from services.orchestrator import __main__ as orchestrator
from services.orchestrator.settings import OrchestratorSettings

HERE = "127.0.0.1:0"
STAGES: dict[str, tuple[str, Any]] = {
    "frontend": ("FrontendService", frontend_pb2_grpc.add_FrontendServiceServicer_to_server),
    "llm": ("LlmService", llm_pb2_grpc.add_LlmServiceServicer_to_server),
    "token2wav": ("Token2WavService", token2wav_pb2_grpc.add_Token2WavServiceServicer_to_server),
}


async def _nothing() -> None:
    pass


@contextlib.asynccontextmanager
async def serving(
    stage: str, servicer: object, listen: str = HERE, facts: ServiceFacts | None = None, **settings: Any
) -> AsyncIterator[Service]:
    """`servicer` as a replica of a stage; leaving the block kills it without a grace period.
    facts: what it says of itself. settings: of the server.
    """
    name, add = STAGES[stage]

    async def load(service: Service) -> Close:
        add(servicer, service.handlers)
        service.info.describe(facts or ServiceFacts(), _nothing)
        return _nothing

    async with running(
        f"cosyserve.v1.{name}", ServerSettings(listen=listen, drain_seconds=0.0, **settings), load
    ) as service:
        yield service


@contextlib.asynccontextmanager
async def orchestrated(
    stages: Mapping[str, Sequence[Service]], **settings: Any
) -> AsyncIterator[tuple[Service, grpc.aio.Channel]]:
    """An orchestrator of these replicas, SERVING when the block begins, and a channel to it.
    settings: of the orchestrator.
    """
    addresses = {name: tuple(f"127.0.0.1:{replica.port}" for replica in replicas) for name, replicas in stages.items()}
    complete = OrchestratorSettings(
        listen=HERE, drain_seconds=0.0, **{"warm_voices": 0, "word_aligners": 0, **addresses, **settings}
    )
    load = partial(orchestrator.load, settings=complete)
    async with (
        running(orchestrator.SERVICE, complete, load, owns_health=True, gate=complete.gate()) as door,
        grpc.aio.insecure_channel(f"127.0.0.1:{door.port}") as channel,
    ):
        await until_serving(channel)
        yield door, channel


async def until_serving(channel: grpc.aio.Channel, serving: bool = True) -> None:
    """Wait on the health watch of the server behind `channel`."""
    wanted = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
    async with asyncio.timeout(20):
        call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""))
        async for response in call:
            if response.status == wanted:
                call.cancel()
                return
