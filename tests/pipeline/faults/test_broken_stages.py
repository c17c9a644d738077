"""A stage that is broken is not stormed, a replica that fails gets no calls, and a request that
takes engines down is not given to a third one.
"""

import asyncio
from typing import Any

import grpc
import pytest

from cosyserve.rpc.calls import retry_delay
from tests.pipeline.calling import TEXT, hook, speak, spoken
from tests.stacks.calls import refusal, until
from tests.stacks.in_process import until_serving
from tests.stacks.scripted_stages import Stack, expected_audio, stack

PATIENT: dict[str, Any] = {"stall_seconds": 10.0, "recovery_seconds": 3.0, "max_streams": 64}


async def go(context: Any, sent: int) -> None:
    """The process is gone, as its caller sees it; not while a write is on its way, which would hide
    the status.
    """
    await asyncio.sleep(0.05)
    await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")


def calls(running: Stack, stage_name: str, call: str) -> int:
    return sum(script.calls.count(call) for script in running.scripts[stage_name])


@pytest.mark.start(
    replicas={"llm": 2}, retries_per_second=0.3, retry_share=0.0, quarantine_engines=0, breaker_failures=0, attempts=4
)
async def test_a_broken_stage_gets_few_more_calls_than_requests(running: Stack) -> None:
    """Without a budget twenty requests would be eighty calls. Its two replicas go away once with
    one call each, which allows two, and three are the floor of ten seconds.
    """
    hook(running, "llm", go)
    hints = []
    for number in range(20):
        await until_serving(running.channel)
        error = await refusal(speak(running, f"word{number}"), grpc.StatusCode.UNAVAILABLE)
        hints.append(retry_delay(error) if "fails too often" in (error.details() or "") else None)
    assert calls(running, "llm", "generate") <= 20 + 2 + 3
    told = [hint for hint in hints if hint is not None]
    assert len(told) >= 15
    assert all(0 < hint <= 10 for hint in told)


@pytest.mark.start(replicas={"llm": 2}, retries_per_second=0.0, retry_share=0.0, **PATIENT)
async def test_a_dead_replica_is_not_heard_however_many_streams_it_had(running: Stack) -> None:
    """There is no floor and no share: the loss itself pays for the streams."""
    gate = asyncio.Event()

    async def wait(*_: Any) -> None:
        await gate.wait()

    hook(running, "llm", wait)
    texts = [f"word{chr(97 + number)}" for number in range(20)]
    speaking = [asyncio.create_task(speak(running, text)) for text in texts]
    await until(lambda: [script.active for script in running.scripts["llm"]] == [10, 10])
    await running.kill("llm", 0)
    gate.set()
    results = await asyncio.gather(*speaking)
    assert [audio for audio, _ in results] == [expected_audio(text) for text in texts]
    assert sum(responses[-1].summary.resumptions for _, responses in results) == 10


@pytest.mark.start(replicas={"llm": 2}, breaker_failures=3, breaker_seconds=30.0)
async def test_a_replica_whose_calls_fail_gets_no_more_while_its_health_is_well(running: Stack) -> None:
    bad, good = running.scripts["llm"]

    async def fail(context: Any, sent: int) -> None:
        await context.abort(grpc.StatusCode.INTERNAL, "a pass failed")

    bad.generate = fail
    outcomes = await asyncio.gather(*[speak(running, f"word{number}") for number in range(3)], return_exceptions=True)
    for number in range(12):
        outcomes += await asyncio.gather(speak(running, f"more{number}"), return_exceptions=True)
    assert sum(isinstance(outcome, BaseException) for outcome in outcomes) == bad.calls.count("generate") == 3
    assert good.calls.count("generate") == 12


@pytest.mark.start(breaker_failures=3, breaker_seconds=0.3)
async def test_the_last_replica_is_closed_off_only_when_it_really_fails_and_is_tried_again(running: Stack) -> None:
    async def fail(context: Any, sent: int) -> None:
        await context.abort(grpc.StatusCode.INTERNAL, "a pass failed")

    hook(running, "llm", fail)
    for _ in range(6):
        await refusal(speak(running, "word"), grpc.StatusCode.INTERNAL, "a pass failed")
    error = await refusal(speak(running, "word"), grpc.StatusCode.UNAVAILABLE, "every replica of llm fails")
    hint = retry_delay(error) or 0.0
    assert hint > 0
    assert calls(running, "llm", "generate") == 6
    hook(running, "llm", None)
    await asyncio.sleep(hint)
    await spoken(running)


@pytest.mark.parametrize("stage_name", ["llm", "token2wav"])
async def test_a_request_that_broke_two_engines_is_not_given_to_a_third(stage_name: str) -> None:
    async with stack({stage_name: 4}, **PATIENT) as running:

        async def poisoned(context: Any, sent: int) -> None:
            if poisonous:
                await go(context, sent)

        poisonous = [True]
        hook(running, stage_name, poisoned)
        error = await refusal(speak(running, "poison"), grpc.StatusCode.FAILED_PRECONDITION, "2 engines were lost")
        assert (retry_delay(error) or 0) > 500
        call = {"llm": "generate", "token2wav": "decode"}[stage_name]
        assert calls(running, stage_name, call) == 2
        poisonous.clear()
        await refusal(speak(running, "poison", seed=3), grpc.StatusCode.FAILED_PRECONDITION)
        assert calls(running, stage_name, call) == 2
        await spoken(running, TEXT)


@pytest.mark.start(replicas={"llm": 3}, **PATIENT)
async def test_streams_that_died_with_the_request_are_served(running: Stack) -> None:
    """Six streams share the engines with one that takes down each engine that it comes to."""
    gate = asyncio.Event()

    texts = ["poisonous", *("abcdef"[:number] for number in range(1, 7))]
    crashed: list[int] = []

    for number, script in enumerate(running.scripts["llm"]):

        async def generate(context: Any, sent: int, number: int = number, script: Any = script) -> None:
            await gate.wait()
            if number in crashed:
                await go(context, sent)
            if sent > 5 * len("abcdef"):  # only the poison is longer
                crashed.append(number)
                await go(context, sent)

        script.generate = generate
    speaking = [asyncio.create_task(speak(running, text)) for text in texts]
    await until(lambda: sum(script.active for script in running.scripts["llm"]) == 7)
    gate.set()
    poison, *others = await asyncio.gather(*speaking, return_exceptions=True)
    assert isinstance(poison, grpc.aio.AioRpcError)
    assert poison.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert len(crashed) == 2
    assert [other[0] for other in others if not isinstance(other, BaseException)] == [
        expected_audio(text) for text in texts[1:]
    ]


@pytest.mark.start(recovery_seconds=5.0, stall_seconds=20.0)
async def test_suspects_of_two_losses_take_turns_and_no_replica_is_suspected_for_that(running: Stack) -> None:
    """Two streams lose their engine together twice; then both are served, one after the other."""
    gates = [asyncio.Event(), asyncio.Event()]
    losses: list[int] = []
    at_once: list[int] = []

    async def generate(context: Any, sent: int) -> None:
        attempt = len(losses) // 2
        if attempt < 2:
            if sum(script.active for script in running.scripts["llm"]) == 2:
                gates[attempt].set()
            await gates[attempt].wait()
            losses.append(sent)
            await go(context, sent)
        at_once.append(sum(script.active for script in running.scripts["llm"]))
        await asyncio.sleep(0.05)

    for script in running.scripts["llm"]:
        script.generate = generate
    results = await asyncio.gather(speak(running, "first"), speak(running, "second"), return_exceptions=True)
    assert [result[0] for result in results if not isinstance(result, BaseException)] == [
        expected_audio("first"),
        expected_audio("second"),
    ]
    assert len(losses) == 4
    assert set(at_once) == {1}
