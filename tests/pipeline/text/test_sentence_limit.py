"""A caller's limit of sentence length reaches the frontend, another replica of it too, and is part
of what a lost request repeats.
"""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from cosyserve.client import AsyncClient
from cosyserve.v1 import frontend_pb2, synthesis_pb2
from tests.pipeline.calling import IMPATIENT, TEXT, abort_once, hang_after_some, hook, speak, unary
from tests.stacks.calls import refusal
from tests.stacks.relay import Relay
from tests.stacks.scripted_stages import Stack, stack

LIMIT = {"max_sentence_characters": 40}


def limits(running: Stack) -> list[int]:
    return [setup.max_sentence_characters for script in running.scripts["frontend"] for setup in script.text_setups]


async def test_every_method_passes_it_on(running: Stack) -> None:
    await speak(running, **LIMIT)
    await unary(running, **LIMIT)
    async with AsyncClient(f"127.0.0.1:{running.orchestrator.port}") as client:
        async with client.streaming_synthesize(max_sentence_characters=40) as speech:
            await speech.write(TEXT)
            await speech.finish()
            await speech.read()
        await client.synthesize(TEXT).read()
    assert limits(running) == [40, 40, 40, 0]


@pytest.mark.start(replicas={"frontend": 2}, **IMPATIENT)
async def test_another_frontend_gets_the_same(running: Stack) -> None:
    failing = abort_once(grpc.StatusCode.UNAVAILABLE, "gone", 0)

    async def analyze(context: Any) -> None:
        await failing(context, 0)

    hook(running, "frontend", analyze)
    await speak(running, **LIMIT)
    assert limits(running) == [40, 40]


async def test_a_lost_request_repeats_it() -> None:
    async with stack() as first, stack() as second, Relay(first.orchestrator.port) as relay:
        hook(first, "token2wav", hang_after_some)
        async with (
            AsyncClient(f"127.0.0.1:{relay.port}") as client,
            client.synthesize(TEXT, max_sentence_characters=40) as speech,
        ):
            await anext(speech)
            relay.target = second.orchestrator.port
            relay.cut()
            await speech.read()
        assert speech.resumed >= 1
        assert limits(second) == [40]


@pytest.mark.parametrize("value", [-1, 9, 20_001])
async def test_values_out_of_range_are_refused_before_any_work(running: Stack, value: int) -> None:
    wanted = f"max_sentence_characters is {value}, allowed are 10 to 20000"
    request = synthesis_pb2.SynthesizeRequest(text=TEXT, max_sentence_characters=value)
    await refusal(running.stub.Synthesize(request).read(), grpc.StatusCode.INVALID_ARGUMENT, wanted)
    assert limits(running) == []


async def of_an_earlier_release(request: Any, context: Any) -> AsyncIterator[frontend_pb2.AnalyzeResponse]:
    """It skips the field that it does not know."""
    yield frontend_pb2.AnalyzeResponse(sentence=frontend_pb2.Sentence(index=0, token_ids=[5]))


@pytest.mark.start(replicas={"frontend": 2})
async def test_a_frontend_that_does_not_know_the_limit_is_passed_over(running: Stack) -> None:
    for script in running.scripts["frontend"][:1]:
        script.analysis = of_an_earlier_release
    await speak(running, **LIMIT)
    assert limits(running)[-1:] == [40]


async def test_without_another_one_the_request_is_refused(running: Stack) -> None:
    running.scripts["frontend"][0].analysis = of_an_earlier_release
    request = synthesis_pb2.SynthesizeRequest(text=TEXT, **LIMIT)
    wanted = "a frontend of an earlier release knows no max_sentence_characters; update it first"
    await refusal(running.stub.Synthesize(request).read(), grpc.StatusCode.FAILED_PRECONDITION, wanted)
    await speak(running)
