"""A broken engine takes no more traffic: the service refuses requests and exits, so that a
supervisor restarts it.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import services.token2wav.__main__ as token2wav
from cosyserve.engines.fallback import LoadedEngine
from cosyserve.errors import CosyserveError
from cosyserve.rpc.server import ServiceBroken, serve
from cosyserve.v1 import token2wav_pb2, token2wav_pb2_grpc
from services.token2wav.decoders.backend import Backend
from services.token2wav.decoders.fake import FakeDecoder, FakeState, load_fake
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.inputs.request import Profile
from tests.contract.token2wav.token2wav_service import setup
from tests.stacks.calls import refusal
from tests.unit.token2wav.speaking import tokens


class Losing(FakeDecoder):
    """Works until its device is lost."""

    lost = False

    def step(self, step_inputs: Sequence[StepInput[FakeState]]) -> list[Decoded | CosyserveError | None]:
        if self.lost:
            raise RuntimeError("CUDA error: unspecified launch failure")
        return super().step(step_inputs)


async def _health(channel: grpc.aio.Channel) -> "health_pb2.HealthCheckResponse.ServingStatus":
    request = health_pb2.HealthCheckRequest(service=token2wav.NAME)
    return (await health_pb2_grpc.HealthStub(channel).Check(request, timeout=5, wait_for_ready=True)).status


async def test_after_three_faults_in_a_row_the_service_ends(monkeypatch: pytest.MonkeyPatch) -> None:
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
        async with asyncio.timeout(10):
            while await _health(channel) != health_pb2.HealthCheckResponse.SERVING:
                await asyncio.sleep(0.01)
        assert [response async for response in stub.Decode(request, timeout=5)]
        decoder.lost = True
        for _ in range(3):
            assert not process.done()
            with pytest.raises(grpc.aio.AioRpcError):
                await anext(aiter(stub.Decode(request, timeout=5)))
        with pytest.raises(ServiceBroken, match="3 steps in a row failed, the last one with RuntimeError: CUDA error"):
            await asyncio.wait_for(process, 10)
        await refusal(
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2),
            grpc.StatusCode.UNAVAILABLE,
        )
