"""StreamingSynthesize in token mode makes the reference's text-streaming sequences: text ids in one
by one, through the public door, the speech-token service on the reference's weights, and a decoder
that sounds each token as its number."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from cosyserve.rpc.server import ServerSettings, Service, running
from cosyserve.v1 import llm_pb2_grpc, profile_pb2, synthesis_pb2, synthesis_pb2_grpc, voice_pb2
from services.llm.backends import torch_backend
from services.llm.generation import requested_script
from services.llm.servicer import LlmServicer
from services.llm.settings import LlmSettings
from services.orchestrator import __main__ as orchestrator
from services.orchestrator.settings import OrchestratorSettings
from tests.stacks.scripted_stages import LOUDNESS, Script, stage, until_serving
from tools.verify.llm import _UntilLimit

TINY = Path(__file__).parent / "tiny"
Request = synthesis_pb2.StreamingSynthesizeRequest


@pytest.fixture
def golden() -> dict[str, np.ndarray]:
    with np.load(TINY / "llm.npz") as archive:
        return {
            name: archive[name].reshape(-1) for name in archive.files if "bistream" in name or name == "prompt_text_ids"
        }


@contextlib.asynccontextmanager
async def door(script: Script, **door_settings: Any) -> AsyncIterator[Any]:
    backend = torch_backend.TorchBackend.load(
        LlmSettings(listen="127.0.0.1:0", model=TINY, backend="torch", device="cpu")
    )

    async def load(service: Service) -> Any:
        llm_pb2_grpc.add_LlmServiceServicer_to_server(LlmServicer(backend), service.handlers)
        return backend.close

    server_settings = ServerSettings(listen="127.0.0.1:0", drain_seconds=0.0)
    async with contextlib.AsyncExitStack() as exits:
        services = {
            "frontend": await exits.enter_async_context(stage("frontend", script)),
            "llm": await exits.enter_async_context(running("cosyserve.v1.LlmService", server_settings, load)),
            "token2wav": await exits.enter_async_context(stage("token2wav", script)),
        }
        addresses = {name: (f"127.0.0.1:{service.port}",) for name, service in services.items()}
        settings = OrchestratorSettings(listen="127.0.0.1:0", drain_seconds=0.0, **addresses, **door_settings)
        public = await exits.enter_async_context(
            running(
                orchestrator.SERVICE, settings, lambda service: orchestrator.load(service, settings), owns_health=True
            )
        )
        channel = await exits.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{public.port}"))
        await until_serving(channel)
        yield synthesis_pb2_grpc.SynthesisServiceStub(channel)


async def spoken_tokens(
    golden: dict[str, np.ndarray], case: str, profile: int, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    monkeypatch.setattr(
        requested_script, "RepetitionAwareChooser", lambda sampling, draw: _UntilLimit(int(golden["bistream_limit"][0]))
    )
    script = Script(letters=tuple(int(text_id) for text_id in golden["bistream_text_ids"]))
    script.voice.CopyFrom(voice_pb2.Voice(id="anna", content_hash="h", speaker_embedding=bytes(4 * 192)))
    if case == "with_prompt":
        script.voice.prompt_text_ids.extend(golden["prompt_text_ids"].tolist())
        script.voice.prompt_speech_tokens.extend(golden["bistream_prompt_speech_ids"].tolist())
    setup = synthesis_pb2.StreamingSynthesizeSetup(
        mode=synthesis_pb2.StreamingSynthesizeSetup.MODE_TOKENS,
        request=synthesis_pb2.SynthesizeRequest(profile=profile),  # type: ignore[arg-type]
    )

    async def messages() -> AsyncIterator[Request]:
        yield Request(setup=setup)
        for _ in script.letters:
            yield Request(text="x")

    async with door(script) as stub:
        audio = b"".join([response.audio async for response in stub.StreamingSynthesize(messages(), timeout=60)])
    return [int(value) - LOUDNESS for value in np.frombuffer(audio, "<i2")[::960]]


@pytest.mark.parametrize("case", ["with_prompt", "no_prompt"])
async def test_profile_upstream_makes_the_reference_sequences(
    golden: dict[str, np.ndarray], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        await spoken_tokens(golden, case, profile_pb2.PROFILE_UPSTREAM, monkeypatch)
        == golden[f"bistream_tokens_{case}"].tolist()
    )


async def test_the_served_profile_differs_only_by_the_doubled_feeding(
    golden: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference feeds the last speech token twice behind the end of the text. With the prompt
    only one token follows there, and it is the same."""
    with_prompt = await spoken_tokens(golden, "with_prompt", profile_pb2.PROFILE_CONTINUOUS, monkeypatch)
    assert with_prompt == golden["bistream_tokens_with_prompt"].tolist()
    without = await spoken_tokens(golden, "no_prompt", profile_pb2.PROFILE_CONTINUOUS, monkeypatch)
    assert without != golden["bistream_tokens_no_prompt"].tolist()
    assert without[:45] == golden["bistream_tokens_no_prompt"].tolist()[:45]
