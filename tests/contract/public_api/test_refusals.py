"""Bad requests at the real public door: the status and the text that the caller reads. And a smoke
of `make attack`: attacks that end soon, against all services with fake engines; and that a broken
limit is told.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from cosyserve.host.supervision.supervisor import local_deployment
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tests.stacks.calls import all_of, refusal
from tests.stacks.whole_stack import WholeStack, whole_stack
from tools.attack.__main__ import ALL, attacked, main, target_of
from tools.attack.target import Finding, Target

pytestmark = pytest.mark.asyncio(loop_scope="module")
INVALID, UNKNOWN = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[WholeStack]:
    async with whole_stack(Path("models/demo"), max_characters=300) as running:
        yield running


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"text": ""}, INVALID, "text has nothing to speak (no letter or digit); allowed are 1 to 300 characters"),
        (
            {"text": "?!... —"},
            INVALID,
            "text has nothing to speak (no letter or digit); allowed are 1 to 300 characters",
        ),
        ({"text": "a" * 301}, INVALID, "text has 301 characters, allowed are 1 to 300"),
        ({"voice": "nobody"}, UNKNOWN, "no voice 'nobody'; known: af_heart, am_michael"),
        (
            {"audio_format": {"sample_rate_hertz": 4_000}},
            INVALID,
            "audio_format.sample_rate_hertz is 4000, allowed are 8000 to 48000",
        ),
        ({"audio_format": {"encoding": 77}}, INVALID, "audio_format.encoding is 77, no value of that number exists"),
        ({"speed": 3.0}, INVALID, "speed is 3, allowed are 0.5 to 2.0"),
        ({"speed": 0.1}, INVALID, "speed is 0.1, allowed are 0.5 to 2.0"),
        ({"language_code": "?"}, INVALID, "language_code '?' is not a BCP-47 tag such as en-US or zh"),
        (
            {"start_sample": 10**9, "seed": 1},
            grpc.StatusCode.OUT_OF_RANGE,
            "start_sample is 1000000000, the utterance has ",
        ),
        ({"text": "x" * 24_000_000}, grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max"),
    ],
)
async def test_refused(stack: WholeStack, fields: dict[str, Any], code: grpc.StatusCode, message: str) -> None:
    async with grpc.aio.insecure_channel(stack.address) as channel:
        stub = synthesis_pb2_grpc.SynthesisServiceStub(channel)
        await refusal(
            all_of(stub.Synthesize(synthesis_pb2.SynthesizeRequest(**{"text": "Hello.", **fields}))), code, message
        )


async def test_nothing_was_done_for_a_refused_request(stack: WholeStack) -> None:
    assert stack.batcher.stats().streams == stack.llm.engine.stats.running == 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target() -> AsyncIterator[Target]:
    async with local_deployment(Path("tests/golden/tiny"), backend="fake", http="127.0.0.1:0") as stack:
        yield target_of(stack)


@pytest.mark.parametrize(
    "name",
    [
        *("half-sent", "connections", "empty-streams", "empty-calls", "undecodable", "hang-ups", "never-reading"),
        *("http-half-closed", "http-head-bombs", "http-body-bombs", "http-form-bombs", "websocket-floods"),
    ],
)
async def test_the_limit_holds(target: Target, name: str) -> None:
    finding = (await attacked(target, [name]))[name]
    assert finding.held, finding


async def test_an_attack_that_cannot_run_is_a_broken_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert not (await attacked(Target("127.0.0.1:1"), ["hang-ups"]))["hang-ups"].held
    assert capsys.readouterr().out.startswith("BROKEN hang-ups")


async def test_a_broken_limit_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = {"half-sent": True, "hang-ups": True}

    def pretend(name: str) -> None:
        async def attack(_: Target) -> Finding:
            return Finding("nothing", "nothing", held[name])

        monkeypatch.setitem(ALL, name, attack)

    for name in held:
        pretend(name)
    given = ["--server", "127.0.0.1:1", "--only", *held]
    assert await asyncio.to_thread(main, given) == 0
    held["hang-ups"] = False
    assert await asyncio.to_thread(main, given) == 1
    assert "1 of 2 limits hold: broken are hang-ups" in capsys.readouterr().out
