"""Every rung of the ladder that a GPU with PyTorch has: what serves, and why not what stands above
it, as GetInfo reports it over gRPC.
"""

import json
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
import torch

from cosyserve.rpc.server import running
from cosyserve.v1 import info_pb2, info_pb2_grpc
from services.llm import __main__ as llm
from services.token2wav import __main__ as token2wav
from services.token2wav.__main__ import Token2WavSettings
from tests.gpu.compiling import SMALL_POOL
from tests.unit.llm.tiny_llm import TINY, settings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.usefixtures("kernels"),
]
LLM = ["fused", "readable", "cpu"]
TOKEN2WAV = ["paged", "readable", "cpu"]


async def info(name: str, wanted: Any, load: Any) -> info_pb2.ServiceInfo:
    """Of a service that has loaded and has spoken once more since."""
    async with (
        running(name, wanted, load) as service,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as channel,
    ):
        stub: Any = info_pb2_grpc.InfoServiceStub(channel)
        assert (await stub.WarmUp(info_pb2.WarmUpRequest(), timeout=120)).milliseconds > 0
        answer: info_pb2.GetInfoResponse = await stub.GetInfo(info_pb2.GetInfoRequest(), timeout=20)
        return answer.info


def check(said: info_pb2.ServiceInfo, ladder: Sequence[str], rung: str) -> None:
    """It serves on `rung`, and each one above it has a reason without a path of this machine."""
    refused = {one.rung: one.reason for one in said.refused_rungs}
    print(said.rung, json.dumps(refused), said.identity.precision, said.identity.device, sep="; ")
    assert (said.ready, said.rung, list(refused)) == (True, rung, list(ladder[: ladder.index(rung)]))
    assert all(reason and str(TINY) not in reason for reason in refused.values())
    assert said.identity.device.startswith("cpu" if rung == "cpu" else torch.cuda.get_device_name(0))


async def of_llm(**changes: Any) -> info_pb2.ServiceInfo:
    wanted = settings(**{"device": "auto", "backend": "auto", "drain_seconds": 0} | changes)
    return await info(llm.NAME, wanted, llm.loader(wanted))


async def of_token2wav(**changes: Any) -> info_pb2.ServiceInfo:
    wanted = Token2WavSettings(**{"listen": "127.0.0.1:0", "model": TINY, "drain_seconds": 0, **SMALL_POOL} | changes)
    return await info(token2wav.NAME, wanted, lambda service: token2wav.load(wanted, service))


async def test_fused_steps_serve_by_themselves() -> None:
    said = await of_llm()
    check(said, LLM, "fused")
    assert "bfloat16, fused" in said.identity.precision
    assert "triton" in said.identity.device
    assert list(said.buckets) == [1, 2, 4, 8, 16]


async def test_too_many_sentences_for_fused_steps_step_down_with_the_reason() -> None:
    said = await of_llm(max_sequences=200)
    check(said, LLM, "readable")
    assert said.refused_rungs[0].reason.startswith("COSYSERVE_LLM_MAX_SEQUENCES is 200, fused steps take at most 128")
    assert said.identity.precision.startswith("float32")


async def test_the_paged_engine_serves_by_itself() -> None:
    said = await of_token2wav()
    check(said, TOKEN2WAV, "paged")
    assert said.identity.precision == (
        "bfloat16, paged, windowed vocoder of float16, batches of up to 32 streams, first hop of 20 tokens"
    )
    assert list(said.buckets) == [1, 2, 4, 8, 16, 32]


async def test_a_pool_that_is_too_small_for_pages_steps_down_with_the_reason() -> None:
    said = await of_token2wav(state_bytes=1 << 10, prompt_cache_bytes=1 << 10)
    check(said, TOKEN2WAV, "readable")
    assert "two are the least" in said.refused_rungs[0].reason
    assert said.identity.precision.startswith("float32")


@pytest.mark.parametrize("service", ["llm", "token2wav"])
async def test_the_last_rung_is_a_setting_away(service: str) -> None:
    said = await (of_llm if service == "llm" else of_token2wav)(device="cpu")
    assert (said.rung, list(said.refused_rungs)) == ("cpu", [])
    assert said.identity.device.startswith("cpu")
