"""What stops the engine: a caller that hangs up; and a fault, for a broken engine takes no more
traffic: the service refuses requests and exits, so that a supervisor restarts it.
"""

import asyncio
import socket
import time
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import services.token2wav.__main__ as token2wav
from cosyserve.engines.fallback import LoadedEngine
from cosyserve.errors import CosyserveError
from cosyserve.rpc.server import DeviceBroken, ServiceBroken, serve
from cosyserve.v1 import token2wav_pb2, token2wav_pb2_grpc
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.decoders.fake import FakeDecoder, FakeState, load_fake
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.inputs.request import Profile
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.stream_slot import StreamSlot
from tests.contract.token2wav.token2wav_service import begin, rest, said, serving, setup
from tests.stacks.calls import refusal
from tests.unit.token2wav.speaking import tokens, torch_backend, until


async def until_idle(batcher: Batcher) -> float:
    """Seconds until no stream is left."""
    began = time.perf_counter()
    await until(lambda: not batcher.stats().streams)
    return time.perf_counter() - began


@pytest.mark.parametrize("profile", [1, 2, 3])
async def test_no_euler_step_begins_after_a_hang_up(
    profile: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted from the moment the service learns of it: at most the step that is beginning just
    then.
    """
    backend = torch_backend()
    async with serving(backend) as service:
        seen: list[int] = []
        cancel = service.batcher.cancel

        def watched(slot: StreamSlot) -> None:
            seen.append(backend.euler_steps())
            cancel(slot)

        monkeypatch.setattr(service.batcher, "cancel", watched)
        call = service.stub.DecodeStream()
        await call.write(begin(prompt=20, profile=profile))
        await call.write(said(tokens(600)))
        await call.done_writing()
        if profile == 3:
            await until(lambda: backend.euler_steps() > 0, 60)
        else:
            while not (await call.read()).audio.audio:  # the first hop may be held back
                pass
        call.cancel()
        idle = await until_idle(service.batcher)
        begun = backend.euler_steps()
        await asyncio.sleep(0.3)
        assert backend.euler_steps() == begun
        assert begun - seen[0] <= 1
        stats = service.batcher.stats()
        assert stats.state_bytes == 0
    with capsys.disabled():
        print(
            f"\n[profile {profile}] idle {idle * 1000:.1f} ms after the hang-up, {begun} Euler steps, longest step "
            f"{stats.longest_step_seconds * 1000:.1f} ms"
        )
    assert begun < 10 * 600 // 25


async def test_hanging_up_before_any_token_frees_the_place() -> None:
    async with serving(load_backend("fake", EngineSettings()), max_streams=1) as service:
        call = service.stub.DecodeStream()
        await call.write(begin())
        await until(lambda: service.batcher.stats().streams == 1)
        call.cancel()
        await until_idle(service.batcher)


async def test_a_deadline_stops_the_engine_too() -> None:
    async with serving(load_backend("fake", EngineSettings(fake_token_seconds=10.0))) as service:
        request = token2wav_pb2.DecodeRequest(setup=setup(), speech_tokens=tokens(50))
        await refusal(anext(aiter(service.stub.Decode(request, timeout=0.2))), grpc.StatusCode.DEADLINE_EXCEEDED)
        await until_idle(service.batcher)


async def test_a_slow_reader_holds_the_engine_back() -> None:
    backend = load_backend("fake", EngineSettings())
    async with serving(backend) as service:
        call = service.stub.Decode(token2wav_pb2.DecodeRequest(setup=setup(), speech_tokens=tokens(4096)))
        await call.read()
        await asyncio.sleep(0.5)
        assert backend.euler_steps() < 4096 // 25
        assert sum(len(audio.audio) for audio in await rest(call)) > 4000 * 1920


class Losing(FakeDecoder):
    """Works until it is given an error."""

    error: Exception | None = None

    def step(self, step_inputs: Sequence[StepInput[FakeState]]) -> list[Decoded | CosyserveError | None]:
        if self.error is not None:
            raise self.error
        return super().step(step_inputs)


async def _health(channel: grpc.aio.Channel) -> "health_pb2.HealthCheckResponse.ServingStatus":
    request = health_pb2.HealthCheckRequest(service=token2wav.NAME)
    return (await health_pb2_grpc.HealthStub(channel).Check(request, timeout=5, wait_for_ready=True)).status


@pytest.mark.parametrize(
    ("text", "faults", "ends", "says"),
    [
        ("planted", 3, ServiceBroken, "3 steps in a row failed, the last one with RuntimeError: planted"),
        ("CUDA error: unspecified launch failure", 1, DeviceBroken, "the GPU is lost to this process"),
    ],
)
async def test_after_three_faults_in_a_row_or_with_its_gpu_the_service_ends(
    monkeypatch: pytest.MonkeyPatch, text: str, faults: int, ends: type[Exception], says: str
) -> None:
    decoder = Losing()
    backend = Backend(load_fake(0.0).identity, dict.fromkeys(Profile, decoder), lambda: decoder.steps)
    monkeypatch.setattr(token2wav, "load_chosen", lambda name, settings, **_: LoadedEngine(backend, "fake"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{free.getsockname()[1]}"
    settings = token2wav.Token2WavSettings(listen=target, backend="fake", drain_seconds=0.0)
    process = asyncio.create_task(serve(token2wav.NAME, settings, lambda service: token2wav.load(settings, service)))
    request = token2wav_pb2.DecodeRequest(setup=setup(), speech_tokens=tokens(5))
    async with grpc.aio.insecure_channel(target) as channel:
        stub: Any = token2wav_pb2_grpc.Token2WavServiceStub(channel)
        while await _health(channel) != health_pb2.HealthCheckResponse.SERVING:
            await asyncio.sleep(0.01)
        assert [response async for response in stub.Decode(request, timeout=5)]
        decoder.error = RuntimeError(text)
        for _ in range(faults):
            assert not process.done()
            with pytest.raises(grpc.aio.AioRpcError):
                await anext(aiter(stub.Decode(request, timeout=5)))
        with pytest.raises(ends, match=says):
            await asyncio.wait_for(process, 10)
        await refusal(
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2),
            grpc.StatusCode.UNAVAILABLE,
        )
