"""A caller that hangs up stops the engine."""

import asyncio
import time

import grpc
import pytest

from cosyserve.v1 import token2wav_pb2
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.stream_slot import StreamSlot
from tests.contract.token2wav.token2wav_service import rest, said, serving, setup
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
        await call.write(token2wav_pb2.DecodeStreamRequest(setup=setup(prompt=20, profile=profile)))
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
        assert service.batcher.stats().state_bytes == 0
        longest = service.batcher.stats().longest_step_seconds
    with capsys.disabled():
        print(
            f"\n[profile {profile}] idle {idle * 1000:.1f} ms after the hang-up, {begun} Euler steps, longest step "
            f"{longest * 1000:.1f} ms"
        )
    assert begun < 10 * 600 // 25


async def test_hanging_up_before_any_token_frees_the_place() -> None:
    async with serving(load_backend("fake", EngineSettings()), max_streams=1) as service:
        call = service.stub.DecodeStream()
        await call.write(token2wav_pb2.DecodeStreamRequest(setup=setup()))
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
        waiting = backend.euler_steps()
        assert waiting < 4096 // 25
        assert sum(len(audio.audio) for audio in await rest(call)) > 4000 * 1920
