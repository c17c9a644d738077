"""The public door as grpcurl sees it: the real binary, nothing of ours on the calling side."""

import asyncio
import base64
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve.client import AsyncClient
from cosyserve.host.supervision.child import Child
from cosyserve.host.supervision.layout import free_ports
from cosyserve.host.supervision.supervisor import local_deployment
from cosyserve.rpc.server import ServerSettings, running

GRPCURL = Path(sys.executable).parent / "grpcurl"
TEXT = "Two callers with one seed hear the same."
STAGES = ("Frontend", "Llm", "Token2Wav")


def _grpcurl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([GRPCURL, "-plaintext", *arguments], capture_output=True, text=True, timeout=60, check=False)


def _messages(output: str) -> list[dict[str, Any]]:
    decoder, found, at = json.JSONDecoder(), [], 0
    while output[at:].strip():
        at += len(output[at:]) - len(output[at:].lstrip())
        message, at = decoder.raw_decode(output, at)
        found.append(message)
    return found


def _health(address: str, service: str = "") -> str:
    answer = _grpcurl("-d", json.dumps({"service": service}), address, "grpc.health.v1.Health/Check")
    return str(json.loads(answer.stdout)["status"])


def test_list_names_every_service_of_the_door(endpoint: str) -> None:
    listed = _grpcurl(endpoint, "list").stdout.split()
    ours = ["cosyserve.v1.InfoService", "cosyserve.v1.SynthesisService", "cosyvoice.CosyVoice"]
    grpcs = ["grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"]
    assert listed == [*ours, *grpcs, "nvidia.riva.tts.RivaSpeechSynthesis"]


def test_describe_shows_the_contract(endpoint: str) -> None:
    service = _grpcurl(endpoint, "describe", "cosyserve.v1.SynthesisService").stdout
    assert (
        "rpc Synthesize ( .cosyserve.v1.SynthesizeRequest ) returns ( stream .cosyserve.v1.SynthesizeResponse );"
        in service
    )
    assert "// Synthesizes a text" in service
    request = _grpcurl(endpoint, "describe", "cosyserve.v1.SynthesizeRequest").stdout
    assert "// " in request
    for field in ("string text = 1;", "optional uint64 seed = 5;", "int64 start_sample = 9;"):
        assert field in request


def test_describe_shows_the_contracts_of_other_servers(endpoint: str) -> None:
    riva = _grpcurl(endpoint, "describe", "nvidia.riva.tts.RivaSpeechSynthesis").stdout
    assert "rpc SynthesizeOnline ( stream .nvidia.riva.tts.SynthesizeSpeechRequest )" in riva
    assert "// Lists the voices." in riva
    assert (
        ".nvidia.riva.AudioEncoding encoding = 3;"
        in _grpcurl(endpoint, "describe", "nvidia.riva.tts.SynthesizeSpeechRequest").stdout
    )
    assert "instructRequest instruct_request = 4;" in _grpcurl(endpoint, "describe", "cosyvoice.Request").stdout


async def test_its_audio_is_what_our_client_hears(endpoint: str) -> None:
    answer = _grpcurl("-d", json.dumps({"text": TEXT, "seed": 5}), endpoint, "cosyserve.v1.SynthesisService/Synthesize")
    assert answer.returncode == 0, answer.stderr
    messages = _messages(answer.stdout)
    async with AsyncClient(endpoint) as client:
        ours = await client.synthesize(TEXT, seed=5).read()
    assert b"".join(base64.b64decode(message.get("audio", "")) for message in messages) == ours
    assert [message.get("chunkIndex", 0) for message in messages] == list(range(len(messages)))
    assert len(messages) > 2
    assert messages[0]["header"]["seed"] == "5"
    assert [index for index, message in enumerate(messages) if "summary" in message] == [len(messages) - 1]
    assert messages[-1]["summary"]["audioSeconds"] == len(ours) / 48_000


def test_a_refusal_has_its_status_and_text(endpoint: str) -> None:
    answer = _grpcurl("-d", json.dumps({"text": "x", "speed": 3}), endpoint, "cosyserve.v1.SynthesisService/Synthesize")
    assert answer.returncode != 0
    assert "Code: InvalidArgument" in answer.stderr
    assert "speed is 3, allowed are 0.5 to 2.0" in answer.stderr


def test_health_of_a_loaded_system_is_serving(endpoint: str) -> None:
    services = ("", "cosyserve.v1.SynthesisService", "nvidia.riva.tts.RivaSpeechSynthesis", "cosyvoice.CosyVoice")
    assert {_health(endpoint, service) for service in services} == {"SERVING"}


@contextlib.asynccontextmanager
async def _orchestrator(port: int, stages: list[int]) -> AsyncIterator[None]:
    told = {name.upper(): f"127.0.0.1:{stage}" for name, stage in zip(STAGES, stages, strict=True)} | {
        "LISTEN": f"127.0.0.1:{port}"
    }
    environ = {f"COSYSERVE_ORCHESTRATOR_{name}": value for name, value in told.items()}
    child = await Child.start("services.orchestrator", "orchestrator.0", told["LISTEN"], environ, lambda line: None)
    try:
        yield
    finally:
        child.process.terminate()
        assert await child.ended() == 0


async def test_health_is_not_serving_until_every_stage_is_loaded() -> None:
    public, *ports = free_ports(4)
    address = f"127.0.0.1:{public}"

    load = AsyncMock(return_value=AsyncMock())
    async with (
        _orchestrator(public, ports),
        contextlib.AsyncExitStack() as stages,
        grpc.aio.insecure_channel(address) as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        for name, port in zip(STAGES, ports, strict=True):
            assert _health(address) == _health(address, "cosyserve.v1.SynthesisService") == "NOT_SERVING"
            settings = ServerSettings(listen=f"127.0.0.1:{port}", drain_seconds=0)
            await stages.enter_async_context(running(f"cosyserve.v1.{name}Service", settings, load))
        while (await watch.read()).status != health_pb2.HealthCheckResponse.SERVING:
            pass
        assert _health(address) == "SERVING"
        watch.cancel()


async def test_each_stage_can_be_called_on_its_own() -> None:
    """Text to ids, ids to tokens, tokens to sound, by hand."""
    async with local_deployment(Path("models/demo"), environ={}) as stack:
        doors = {child.name: f"127.0.0.1:{child.port}" for child in stack.children}

        async def ask(stage: str, method: str, request: dict[str, Any]) -> list[dict[str, Any]]:
            answer = await asyncio.to_thread(
                _grpcurl, "-d", json.dumps(request), doors[stage], f"cosyserve.v1.{method}"
            )
            assert answer.returncode == 0, answer.stderr
            return _messages(answer.stdout)

        (sentence,) = await ask("frontend", "FrontendService/Analyze", {"text": "It works."})
        (found,) = await ask("frontend", "FrontendService/GetVoice", {"id": "af_heart"})
        voice, ids = found["voice"], sentence["sentence"]["tokenIds"]
        prompt = {"prompt_text_ids": voice["promptTextIds"], "prompt_speech_tokens": voice["promptSpeechTokens"]}
        told = await ask("llm", "LlmService/Generate", {"setup": {**prompt, "seed": 7}, "text_ids": ids})
        tokens = [token for message in told for token in message["tokens"].get("tokens", [])]
        # The mel is that of the prompt's last tokens, two frames of 80 floats each.
        shown = len(base64.b64decode(voice["promptMel"])) // (2 * 80 * 4)
        setup = {"prompt_mel": voice["promptMel"], "speaker_embedding": voice["speakerEmbedding"]}
        setup["prompt_speech_tokens"] = voice["promptSpeechTokens"][-shown:]
        heard = await ask(
            "token2wav", "Token2WavService/Decode", {"setup": {**setup, "seed": 7}, "speech_tokens": tokens}
        )
        audio = b"".join(base64.b64decode(message["audio"].get("audio", "")) for message in heard)
        async with AsyncClient(stack.address) as client:
            assert await client.synthesize("It works.", seed=7, voice="af_heart", onset="natural").read() == audio
    assert len(audio) == 2 * 960 * len(tokens)
    assert told[0]["tokens"]["identity"]["backend"] == heard[0]["audio"]["identity"]["backend"] == "torch"
