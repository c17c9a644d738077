"""The four real services in one process on loopback, so that a test can look at the engines'
counters.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from cosyserve.client import AsyncClient
from cosyserve.rpc.server import Service, running
from cosyserve.v1 import llm_pb2_grpc, token2wav_pb2_grpc
from services.frontend import __main__ as frontend
from services.frontend.settings import FrontendSettings
from services.llm.backends.torch_backend import TorchBackend
from services.llm.servicer import LlmServicer
from services.llm.settings import LlmSettings
from services.orchestrator import __main__ as orchestrator
from services.orchestrator.settings import OrchestratorSettings
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher, Limits
from services.token2wav.servicer import Token2WavServicer
from tests.stacks.scripted_stages import until_serving

ANY_PORT = "127.0.0.1:0"


@dataclass
class WholeStack:
    address: str
    client: AsyncClient
    llm: TorchBackend
    token2wav: Backend
    batcher: Batcher


@contextlib.asynccontextmanager
async def whole_stack(model: Path, **orchestrator_settings: Any) -> AsyncIterator[WholeStack]:
    """All services on `model`, SERVING when the block begins."""
    llm = TorchBackend.load(LlmSettings(listen=ANY_PORT, model=model, backend="torch"))
    token2wav = load_backend("torch", EngineSettings(model=model))
    batcher = Batcher(token2wav.decoders, Limits(max_streams=32, state_bytes=1 << 32))

    async def load_llm(service: Service) -> Any:
        llm_pb2_grpc.add_LlmServiceServicer_to_server(LlmServicer(llm), service.handlers)
        return llm.close

    async def load_token2wav(service: Service) -> Any:
        token2wav_pb2_grpc.add_Token2WavServiceServicer_to_server(
            Token2WavServicer(token2wav.identity, batcher), service.handlers
        )
        return _close_batcher

    async def _close_batcher() -> None:
        batcher.close()

    frontend_settings = FrontendSettings(listen=ANY_PORT, model=model, drain_seconds=0.0)
    async with contextlib.AsyncExitStack() as exits:
        text = await exits.enter_async_context(
            running(
                "cosyserve.v1.FrontendService",
                frontend_settings,
                lambda service: frontend.load(service, frontend_settings),
            )
        )
        tokens = await exits.enter_async_context(running("cosyserve.v1.LlmService", frontend_settings, load_llm))
        sound = await exits.enter_async_context(
            running("cosyserve.v1.Token2WavService", frontend_settings, load_token2wav)
        )
        addresses = {"frontend": text, "llm": tokens, "token2wav": sound}
        settings = OrchestratorSettings(
            listen=ANY_PORT,
            drain_seconds=0.0,
            **{name: (f"127.0.0.1:{service.port}",) for name, service in addresses.items()},
            **{"max_streams": 32, "adaptive_limit": "off", "warm_voices": 0, **orchestrator_settings},
        )
        door = await exits.enter_async_context(
            running(
                orchestrator.SERVICE, settings, lambda service: orchestrator.load(service, settings), owns_health=True
            )
        )
        address = f"127.0.0.1:{door.port}"
        async with grpc.aio.insecure_channel(address) as channel:
            await until_serving(channel)
        client = await exits.enter_async_context(AsyncClient(address))
        yield WholeStack(address, client, llm, token2wav, batcher)
