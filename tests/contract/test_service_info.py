"""GetInfo and WarmUp on every service: what serves and why, from the first moment on, with nothing
that names a path of the machine.
"""

import asyncio
import json
from typing import Any
from unittest.mock import AsyncMock, Mock

import grpc
import pytest

from cosyserve.rpc.server import Close, Service, running
from cosyserve.rpc.service_info import ServiceFacts
from cosyserve.v1 import info_pb2, info_pb2_grpc, llm_pb2, llm_pb2_grpc
from services.frontend import __main__ as frontend
from services.frontend.settings import FrontendSettings
from services.llm import __main__ as llm
from services.orchestrator import __main__ as orchestrator
from services.orchestrator.settings import OrchestratorSettings
from services.token2wav import __main__ as token2wav
from tests.stacks.calls import refusal, refused, until
from tests.stacks.in_process import until_serving
from tests.stacks.up_process import DEMO, run_cosyserve
from tests.unit.llm.tiny_llm import TINY, settings

ANY = "127.0.0.1:0"


def stub(channel: grpc.aio.Channel) -> Any:
    return info_pb2_grpc.InfoServiceStub(channel)


async def info(channel: grpc.aio.Channel) -> info_pb2.GetInfoResponse:
    answer: info_pb2.GetInfoResponse = await stub(channel).GetInfo(info_pb2.GetInfoRequest(), timeout=20)
    return answer


def address(service: Service) -> str:
    return f"127.0.0.1:{service.port}"


async def test_the_llm_says_which_rung_serves_and_what_was_stepped_over() -> None:
    told = settings(device="auto", backend="auto", auto_first="vllm", drain_seconds=0)
    async with (
        running(llm.NAME, told, llm.loader(told)) as service,
        grpc.aio.insecure_channel(address(service)) as channel,
    ):
        said = (await info(channel)).info
        first = await anext(aiter(llm_pb2_grpc.LlmServiceStub(channel).Generate(request())))
        assert said.identity == first.tokens.identity
    assert (said.service, said.ready, said.rung) == (llm.NAME, True, "cpu")
    assert [one.rung for one in said.refused_rungs] == ["vllm", "fused", "readable"]
    assert all(one.reason and "/" not in one.reason for one in said.refused_rungs)
    assert (said.limits["max_sequences"], said.limits["max_positions"]) == (told.max_sequences, 2048)
    assert "kv_budget_mib" not in said.limits
    assert {"torch", "grpcio", "protobuf"} <= said.libraries.keys()
    assert said.uptime_seconds > 0
    assert not said.buckets
    assert str(TINY) not in str(said)


def request() -> llm_pb2.GenerateRequest:
    return llm_pb2.GenerateRequest(setup=llm_pb2.GenerateSetup(), text_ids=[1])


async def test_it_answers_while_it_loads_and_warms_up_one_at_a_time() -> None:
    told = settings(backend="fake")
    may_load, may_warm, begun = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def warm_up() -> None:
        begun.set()
        await may_warm.wait()

    async def load(service: Service) -> Close:
        started.set_result(service)
        await may_load.wait()
        service.info.describe(ServiceFacts(rung="fake"), warm_up)
        return AsyncMock()

    async def serve() -> None:
        async with running(llm.NAME, told, load):
            await ended.wait()

    started, ended = asyncio.get_running_loop().create_future(), asyncio.Event()
    serving = asyncio.create_task(serve())
    async with grpc.aio.insecure_channel(address(await started)) as channel:
        said = (await info(channel)).info
        assert (said.ready, said.rung, said.HasField("identity")) == (False, "", False)
        await refusal(stub(channel).WarmUp(info_pb2.WarmUpRequest()), grpc.StatusCode.UNAVAILABLE, "still loading")
        may_load.set()
        while not (await info(channel)).info.ready:
            await asyncio.sleep(0.01)
        first = asyncio.ensure_future(stub(channel).WarmUp(info_pb2.WarmUpRequest()))
        await begun.wait()
        assert await refused(stub(channel).WarmUp(info_pb2.WarmUpRequest())) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "a warm-up is under way",
        )
        may_warm.set()
        assert (await first).milliseconds > 0
    ended.set()
    await serving


@pytest.mark.parametrize("kind", ["fake", "auto"])
async def test_token2wav_says_the_same_and_speaks_once(kind: str) -> None:
    told = token2wav.Token2WavSettings(listen=ANY, backend=kind, model=TINY, drain_seconds=0)
    async with (
        running(token2wav.NAME, told, lambda service: token2wav.load(told, service)) as service,
        grpc.aio.insecure_channel(address(service)) as channel,
    ):
        said = (await info(channel)).info
        assert (await stub(channel).WarmUp(info_pb2.WarmUpRequest(), timeout=60)).milliseconds > 0
    assert said.rung == {"fake": "fake", "auto": "cpu"}[kind]
    assert [one.rung for one in said.refused_rungs] == {"fake": [], "auto": ["paged", "readable"]}[kind]
    assert said.limits["max_streams"] == 16


async def test_the_orchestrator_reports_what_its_stages_say() -> None:
    text = FrontendSettings(listen=ANY, model=DEMO, drain_seconds=0)
    tokens, sound = settings(backend="fake"), token2wav.Token2WavSettings(listen=ANY, backend="fake", drain_seconds=0)
    async with (
        running(frontend.SERVICE, text, lambda service: frontend.load(service, text)) as first,
        running(llm.NAME, tokens, llm.loader(tokens)) as second,
        running(token2wav.NAME, sound, lambda service: token2wav.load(sound, service)) as third,
    ):
        door = OrchestratorSettings(
            listen=ANY,
            frontend=(address(first),),
            llm=(address(second), "127.0.0.1:9"),
            token2wav=(address(third),),
            drain_seconds=0,
        )
        async with (
            running(
                orchestrator.SERVICE, door, lambda service: orchestrator.load(service, door), owns_health=True
            ) as service,
            grpc.aio.insecure_channel(address(service)) as channel,
        ):
            await until_serving(channel)
            said = await info(channel)
            warm = await stub(channel).WarmUp(info_pb2.WarmUpRequest(), timeout=60)
            shown = await asyncio.to_thread(run_cosyserve, "info", "--json", "--server", address(service))
    assert [one.service for one in said.stages] == [frontend.SERVICE, llm.NAME, token2wav.NAME]
    assert list(said.silent_stages) == ["llm: UNAVAILABLE"]
    assert (said.info.service, said.info.HasField("identity")) == (orchestrator.SERVICE, False)
    assert said.info.limits["max_streams"] == 16
    assert warm.milliseconds > 0
    assert [one.get("rung") for one in json.loads(shown.stdout)["stages"]] == [None, "fake", "fake"]


async def test_who_asks_while_the_stages_are_asked_gets_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, may_answer = 0, asyncio.Event()
    called = Mock()

    async def stages() -> tuple[list[info_pb2.ServiceInfo], list[str]]:
        nonlocal asked
        asked += 1
        await may_answer.wait()
        return [info_pb2.ServiceInfo(rung=f"answer {asked}")], []

    async def load(service: Service) -> Close:
        service.info.describe(ServiceFacts(), AsyncMock(), stages)
        called.side_effect = service.info._info
        monkeypatch.setattr(service.info, "_info", called)
        return AsyncMock()

    told = settings(backend="fake", drain_seconds=0)
    async with running(llm.NAME, told, load) as service, grpc.aio.insecure_channel(address(service)) as channel:
        impatient, *others = [asyncio.ensure_future(info(channel)) for _ in range(3)]
        await until(lambda: called.call_count == 3)
        impatient.cancel()
        may_answer.set()
        assert [[one.rung for one in answer.stages] for answer in await asyncio.gather(*others)] == [["answer 1"]] * 2
        assert [one.rung for one in (await info(channel)).stages] == ["answer 2"]


def test_the_command_shows_it_to_people(endpoint: str) -> None:
    done = run_cosyserve("info", "--warm-up", "--server", endpoint)
    assert done.returncode == 0, done.stderr
    assert "warm after" in done.stderr
    for words in (
        "cosyserve.v1.SynthesisService",
        "cosyserve.v1.LlmService",
        "engine     fake: fake, none",
        "limits     ",
    ):
        assert words in done.stdout
    assert run_cosyserve("info", "--server", "127.0.0.1:9").returncode == 1
