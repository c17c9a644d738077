"""Too many callers at the public door: refused at once, with a hint that comes true; and the limit
that the stages' own figures set.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest.mock import AsyncMock

import grpc
import pytest

from cosyserve.engines.compatibility import Identity
from cosyserve.engines.engine_load import Load
from cosyserve.rpc.calls import retry_delay
from cosyserve.rpc.service_info import ServiceFacts
from cosyserve.v1 import info_pb2, info_pb2_grpc, synthesis_pb2
from tests.pipeline.calling import TEXT, busy, hold_back, hook, speak
from tests.stacks.calls import refusal
from tests.stacks.scripted_stages import Stack, stack

REFUSED_WITHIN_SECONDS = 0.02


async def _setup_only() -> AsyncIterator[synthesis_pb2.StreamingSynthesizeRequest]:
    yield synthesis_pb2.StreamingSynthesizeRequest(setup=synthesis_pb2.StreamingSynthesizeSetup())
    await asyncio.Event().wait()


def _calls(running: Stack) -> dict[str, Callable[[], Any]]:
    stub = running.stub
    return {
        "Synthesize": lambda: stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=TEXT)).read(),
        "StreamingSynthesize": lambda: stub.StreamingSynthesize(_setup_only()).read(),
        "SynthesizeUnary": lambda: stub.SynthesizeUnary(synthesis_pb2.SynthesizeUnaryRequest(text=TEXT)),
        "ConvertVoice": lambda: stub.ConvertVoice(synthesis_pb2.ConvertVoiceRequest(audio=b"RIFF")).read(),
    }


@pytest.mark.parametrize("door", ["Synthesize", "StreamingSynthesize", "SynthesizeUnary", "ConvertVoice"])
@pytest.mark.start(max_streams=2)
async def test_one_caller_more_is_refused_at_once_at_every_door(running: Stack, door: str) -> None:
    """The quickest of ten counts: what else the machine does is not the orchestrator's time."""
    freed = hold_back(running)
    filling = [asyncio.create_task(speak(running)) for _ in range(2)]
    await busy(running, "token2wav")
    assert (await _said(running)).active_streams == 2
    waits = []
    for _ in range(10):
        began = time.monotonic()
        error = await refusal(_calls(running)[door](), grpc.StatusCode.RESOURCE_EXHAUSTED, "2 of 2 streams are in use")
        waits.append(time.monotonic() - began)
        assert retry_delay(error) is not None
    assert min(waits) < REFUSED_WITHIN_SECONDS
    freed.set()
    await asyncio.gather(*filling)


@pytest.mark.start(max_streams=1)
async def test_the_hint_comes_true(running: Stack) -> None:
    """Requests take a second, and the server has seen one: who is refused in the middle of one and
    comes back when told gets in.
    """

    async def a_second(_: Any, sent: int) -> None:
        await asyncio.sleep(1.0 if sent == 0 else 0.0)

    running.scripts["token2wav"][0].decode = a_second
    await speak(running, "word")
    told = []
    for _ in range(2):
        under_way = asyncio.create_task(speak(running, "word"))
        await busy(running, "token2wav")
        await asyncio.sleep(0.1)
        hint = retry_delay(await refusal(speak(running, "word")))
        told.append(hint)
        await asyncio.sleep(hint + 0.4)
        await speak(running, "word")
        await under_way
    assert all(0.4 <= hint < 1.5 for hint in told)


async def _said(running: Stack) -> info_pb2.ServiceInfo:
    return (await info_pb2_grpc.InfoServiceStub(running.channel).GetInfo(info_pb2.GetInfoRequest(), timeout=10)).info


async def _limit(running: Stack, wanted: int) -> None:
    while (await _said(running)).admitted_streams != wanted:
        await speak(running, "a")
        await asyncio.sleep(0.05)


def _measures(running: Stack, stage: str, load: Load, device: str = "cpu AVX2") -> None:
    info = running.services[stage][0].info
    info.describe(ServiceFacts(identity=Identity("0", "torch", "float32", device)), AsyncMock(), load=lambda: load)


@pytest.mark.start(max_streams=8)
async def test_the_limit_follows_what_the_stages_measure(running: Stack) -> None:
    assert (await _said(running)).admitted_streams == 8
    _measures(running, "llm", Load(0.1))
    _measures(running, "token2wav", Load(0.2))
    await _limit(running, 4)
    _measures(running, "token2wav", Load(0.3))
    await _limit(running, 2)
    _measures(running, "token2wav", Load(0.01))
    await _limit(running, 8)


@pytest.mark.parametrize(
    ("setting", "device", "limit"), [("off", "cpu", 8), ("auto", "NVIDIA H200", 8), ("on", "NVIDIA H200", 4)]
)
async def test_whose_measurements_count(setting: str, device: str, limit: int) -> None:
    async with stack(max_streams=8, adaptive_limit=setting) as running:
        _measures(running, "token2wav", Load(0.2), device)
        await speak(running, "a")
        await asyncio.sleep(0.3)
        await _limit(running, limit)
        assert (await _said(running)).admitted_streams == limit


async def test_the_decoder_gets_what_the_listener_has_left(running: Stack) -> None:
    await speak(running, "one two three", sentence_pause_milliseconds=200)
    first, second, third = running.scripts["token2wav"][0].decode_setups
    assert first.listener_seconds == 0.0
    # 15 tokens of 40 ms and a pause of 200 ms; all of it was made within a fraction of that.
    assert 0.4 < second.listener_seconds <= 0.8
    assert second.listener_seconds + 0.4 < third.listener_seconds <= 1.6


@pytest.mark.start(replicas={"token2wav": 2})
async def test_each_decoder_gets_the_number_of_streams_of_all_of_them(running: Stack) -> None:
    """Two replicas, each of which sees two of four."""
    scripts = running.scripts["token2wav"]
    together = asyncio.Barrier(4)

    async def begin(context: Any, sent: int) -> None:
        if sent == 0:
            await together.wait()

    hook(running, "token2wav", begin)
    await asyncio.gather(*(speak(running, "word") for _ in range(4)))
    assert [len(script.decode_setups) for script in scripts] == [2, 2]
    assert sorted(setup.caller_streams for script in scripts for setup in script.decode_setups) == [1, 2, 3, 4]
