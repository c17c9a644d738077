"""LlmService over real gRPC on the hosted backends: messages, replays, text streams, cancellation
and refusals as on the torch backend.
"""

import multiprocessing
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from cosyserve.v1 import identity_pb2, info_pb2, info_pb2_grpc, llm_pb2
from services.llm.hosted.hosted_backend import HostedBackend
from tests.contract.llm.llm_service import PROMPT, Setup, generate, generate_stream, joined, served, started
from tests.stacks.calls import refusal, refused, until
from tests.unit.llm.hosted import fake_vllm, step_engine
from tests.unit.llm.hosted.hosts import SEAMS, conversions, engine_of, hosted, library
from tests.unit.llm.tiny_llm import backend


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return conversions(tmp_path_factory.mktemp("hosted"))


@pytest.fixture(params=SEAMS)
async def service(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, converted: Path
) -> AsyncIterator[tuple[HostedBackend, Any]]:
    limits = {"max_sequences": 2, "max_waiting": 2, "retry_after_seconds": 3}
    async with hosted(request.param, monkeypatch, converted, **limits) as ours, served(ours) as stub:
        yield ours, stub


async def test_messages_are_those_of_torch(service: tuple[HostedBackend, Any]) -> None:
    ours, stub = service
    whole = await generate(stub, seed=3, first_message_tokens=2, message_tokens=3, **PROMPT)
    streamed = await generate_stream(stub, [[0], [], range(1, 8)], seed=1, **PROMPT)
    async with backend() as torch, served(torch) as other:
        assert [list(one.tokens) for one in whole] == [
            list(one.tokens)
            for one in await generate(other, seed=3, first_message_tokens=2, message_tokens=3, **PROMPT)
        ]
        assert joined(streamed) == joined(await generate_stream(other, [range(8)], seed=1, **PROMPT))
    assert whole[0].identity.backend == ours.identity.backend
    assert whole[-1].summary.finish_reason in (1, 2)


async def test_a_replay_goes_on_on_the_same_engine_only(service: tuple[HostedBackend, Any]) -> None:
    _, stub = service
    messages = await generate(stub, seed=1)
    whole, identity = joined(messages), messages[0].identity
    rest = await generate(stub, seed=1, replay_tokens=whole[:5], expected_identity=identity)
    assert (joined(rest), rest[-1].summary.tokens) == (whole[5:], len(whole))
    torch = identity_pb2.EngineIdentity(
        model_hash=identity.model_hash, backend="torch", precision="float32", device=identity.device
    )
    await refusal(
        generate(stub, seed=1, replay_tokens=whole[:5], expected_identity=torch), grpc.StatusCode.FAILED_PRECONDITION
    )


async def test_hanging_up_aborts_and_overload_is_refused_with_a_hint(service: tuple[HostedBackend, Any]) -> None:
    ours, stub = service
    calls = [
        stub.Generate(llm_pb2.GenerateRequest(setup=Setup(first_message_tokens=1), text_ids=[1] * 60)) for _ in range(4)
    ]
    for call in calls:
        await anext(aiter(call))
    error = await refusal(generate(stub), grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert "grpc-status-details-bin" in dict(error.trailing_metadata())
    for call in calls:
        call.cancel()
    await until(lambda: not (engine_of(ours).active or ours.admission.admitted), 120)
    assert engine_of(ours).steps < 4 * 60 * 20
    assert joined(await generate(stub))


async def test_what_is_out_of_range_is_refused_before_any_work(service: tuple[HostedBackend, Any]) -> None:
    ours, stub = service
    for values, message in (
        ({"text": [1, 300]}, "text_ids[1] is 300, allowed 0 to 275"),
        (
            {"text": [1] * 98},
            "text_ids has 98 ids, which with this prompt may need 2060 positions; this server reserves at most 2048",
        ),
    ):
        assert await refused(generate(stub, **values)) == (grpc.StatusCode.INVALID_ARGUMENT, message)
    await refusal(generate_stream(stub, [[1]], profile=2), grpc.StatusCode.INVALID_ARGUMENT)
    assert engine_of(ours).steps == 0


async def test_an_engine_that_loads_and_does_not_speak_gives_way_to_the_next(
    monkeypatch: pytest.MonkeyPatch, converted: Path
) -> None:
    with library("vllm", monkeypatch):
        monkeypatch.setattr(step_engine.StepEngine, "_row", lambda *_: 1 / 0)
        async with started(auto_first="vllm", device="auto", converted=converted) as (_, channel):
            info = (await info_pb2_grpc.InfoServiceStub(channel).GetInfo(info_pb2.GetInfoRequest(), timeout=20)).info  # type: ignore[attr-defined]
    assert info.rung == "cpu"
    reasons = {one.rung: one.reason for one in info.refused_rungs}
    assert "the engine cannot speak its first sentence: the speech-token engine failed" in reasons["vllm"]
    assert list(reasons) == ["vllm", "fused", "readable"]


async def test_a_service_whose_engine_dies_while_idle_ends(monkeypatch: pytest.MonkeyPatch, converted: Path) -> None:
    monkeypatch.setattr(fake_vllm.AsyncLLM, "with_core", True)
    with library("vllm", monkeypatch):
        async with started(backend="vllm", device="auto", converted=converted) as (service, _):
            (core,) = multiprocessing.active_children()
            core.kill()
            assert "a process of the speech-token engine has ended" in await service.over
