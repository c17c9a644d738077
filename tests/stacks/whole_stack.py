"""The four real services in one process on loopback, so that a test can look at the engines'
counters.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cosyserve.client import AsyncClient
from cosyserve.generations.generation import SilentTokens
from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from cosyserve.rpc.server import running
from cosyserve.rpc.service_info import ServiceFacts
from services.frontend import __main__ as frontend
from services.frontend.settings import FrontendSettings
from services.llm.backends.fake_backend import FakeBackend
from services.llm.backends.torch_backend import TorchBackend
from services.llm.servicer import LlmServicer
from services.llm.settings import LlmSettings
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.decoders.interface import takes_prompt_whole
from services.token2wav.inputs.request import Profile
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher, Limits
from services.token2wav.servicer import Token2WavServicer
from tests.stacks.in_process import HERE, orchestrated, serving


@dataclass
class WholeStack:
    address: str
    client: AsyncClient
    llm: TorchBackend
    token2wav: Backend
    batcher: Batcher


@contextlib.asynccontextmanager
async def whole_stack(
    model: Path,
    *,
    decoder_model: Path | None = None,
    silent: SilentTokens | None = None,
    **orchestrator_settings: Any,
) -> AsyncIterator[WholeStack]:
    """All services on `model`, SERVING when the block begins. decoder_model: of flow and vocoder,
    where they are not those of `model`. silent: tokens of which long runs are
    not spoken; None: those of the model's generation.
    """
    silent = silent or generation_of(ModelDirectory(model)).silent
    llm = TorchBackend.load(LlmSettings(listen=HERE, model=model, backend="torch"))
    token2wav = load_backend("torch", EngineSettings(model=model, decoder_model=decoder_model))
    async with _around(model, llm, token2wav, orchestrator_settings, silent) as running_stack:
        yield running_stack


@contextlib.asynccontextmanager
async def fake_stack(model: Path, **orchestrator_settings: Any) -> AsyncIterator[AsyncClient]:
    """The same with the fake engines: a client of it."""
    llm, token2wav = FakeBackend(LlmSettings(listen=HERE, backend="fake")), load_backend("fake", EngineSettings())
    async with _around(model, llm, token2wav, orchestrator_settings) as running_stack:
        yield running_stack.client


@contextlib.asynccontextmanager
async def _around(
    model: Path,
    llm: Any,
    token2wav: Backend,
    orchestrator_settings: dict[str, Any],
    silent: SilentTokens | None = None,
) -> AsyncIterator[WholeStack]:
    batcher = Batcher(token2wav.decoders, Limits(max_streams=32, state_bytes=1 << 32))

    frontend_settings = FrontendSettings(listen=HERE, model=model, drain_seconds=0.0)
    load = partial(frontend.load, settings=frontend_settings)
    async with contextlib.AsyncExitStack() as exits:
        exits.push_async_callback(llm.close)
        exits.callback(batcher.close)
        servicers = {
            "llm": LlmServicer(llm, silent=silent),
            "token2wav": Token2WavServicer(token2wav.identity, batcher),
        }
        facts = ServiceFacts(prompt_as_block=takes_prompt_whole(token2wav.decoders[Profile.CONTINUOUS]))
        stages = {
            name: [await exits.enter_async_context(serving(name, one, facts=facts))] for name, one in servicers.items()
        }
        stages["frontend"] = [await exits.enter_async_context(running(frontend.SERVICE, frontend_settings, load))]
        settings = {"max_streams": 32, "adaptive_limit": "off", **orchestrator_settings}
        door, _ = await exits.enter_async_context(orchestrated(stages, **settings))
        address = f"127.0.0.1:{door.port}"
        client = await exits.enter_async_context(AsyncClient(address))
        yield WholeStack(address, client, llm, token2wav, batcher)
