"""Stages that die, hang, refuse or are another engine: what the caller hears and which status it
reads.
"""

import asyncio
from typing import Any

import grpc
import pytest

from cosyserve.rpc.calls import retry_delay
from cosyserve.v1 import identity_pb2
from tests.pipeline.calling import IMPATIENT, abort_once, all_idle, hang, hook, speak, spoken
from tests.stacks.calls import refusal
from tests.stacks.in_process import until_serving
from tests.stacks.scripted_stages import Stack, stack


@pytest.mark.parametrize(
    ("stage_name", "killed_at"),
    [("llm", 4), ("llm", 8), ("llm", 16), ("token2wav", 0), ("token2wav", 960), ("token2wav", 9_600)],
)
async def test_a_stage_dies_and_its_successor_continues_behind_what_was_already_made(
    stage_name: str, killed_at: int
) -> None:
    """The LLM behind the tokens it gets, token2wav with the samples that were not heard."""
    async with stack({stage_name: 2}, **IMPATIENT) as running:
        hook(running, stage_name, abort_once(grpc.StatusCode.UNAVAILABLE, "gone", killed_at))
        responses = await spoken(running)
        replayed = [count for script in running.scripts["llm"] for count in script.replayed]
    assert stage_name != "llm" or max(replayed) >= killed_at
    assert responses[-1].summary.resumptions == 1


@pytest.mark.start({"token2wav": 2}, **IMPATIENT)
async def test_a_stage_that_is_stopped_is_replaced_by_the_other_replica(running: Stack) -> None:
    reached = asyncio.Event()

    async def wait_to_be_stopped(context: Any, sent: int) -> None:
        if sent >= 4_800 and not reached.is_set():
            reached.set()
            await hang()

    hook(running, "token2wav", wait_to_be_stopped)
    request = asyncio.create_task(spoken(running))
    await reached.wait()
    await running.kill("token2wav", 0 if running.scripts["token2wav"][0].active else 1)
    responses = await request
    assert responses[-1].summary.resumptions == 1


@pytest.mark.start({"llm": 2}, **IMPATIENT)
async def test_a_stage_that_hangs_is_given_up_for_another(running: Stack) -> None:
    hung: list[bool] = []

    async def hang_once(context: Any, sent: int) -> None:
        if not hung:
            hung.append(True)
            await hang()

    hook(running, "llm", hang_once)
    await spoken(running)


@pytest.mark.parametrize("stage_name", ["frontend", "llm", "token2wav"])
@pytest.mark.start(stall_seconds=0.3, recovery_seconds=0.2, attempts=1)
async def test_a_peer_that_hangs_is_named_with_how_long_it_was_waited_for(running: Stack, stage_name: str) -> None:
    hook(running, stage_name, hang)
    await refusal(speak(running), grpc.StatusCode.DEADLINE_EXCEEDED, stage_name, "gave no answer for 0.3 s")


@pytest.mark.parametrize("stage_name", ["frontend", "llm", "token2wav"])
@pytest.mark.start(**IMPATIENT)
async def test_a_peer_that_is_down_is_named_at_once_and_health_says_so(running: Stack, stage_name: str) -> None:
    await running.kill(stage_name, 0)
    await until_serving(running.channel, serving=False)
    error = await refusal(speak(running), grpc.StatusCode.UNAVAILABLE)
    assert (error.details(), retry_delay(error)) == (f"no replica of {stage_name} is serving", 1.0)


@pytest.mark.parametrize(
    ("stage_name", "code"),
    [
        ("llm", grpc.StatusCode.INTERNAL),
        ("token2wav", grpc.StatusCode.INTERNAL),
        ("llm", grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
@pytest.mark.start(**IMPATIENT)
async def test_an_error_of_a_stage_in_mid_stream_reaches_the_caller(
    running: Stack, stage_name: str, code: grpc.StatusCode
) -> None:
    hook(running, stage_name, abort_once(code, "so it is", 4))
    await refusal(speak(running), code, "so it is", stage_name)
    await all_idle(running)


@pytest.mark.start(**IMPATIENT)
async def test_a_stage_that_is_full_between_sentences_is_waited_for(running: Stack) -> None:
    """The caller has heard the first sentence: the second waits for a place instead of being
    lost.
    """
    refusals = iter([False, True, True, False, False, False])

    async def full(context: Any, sent: int) -> None:
        if sent == 0 and next(refusals):
            await asyncio.sleep(0.05)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")

    hook(running, "token2wav", full)
    await spoken(running)


@pytest.mark.start(recovery_seconds=30.0)
async def test_a_stage_that_is_full_at_the_start_refuses_at_once(running: Stack) -> None:
    hook(running, "token2wav", abort_once(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", 0))
    async with asyncio.timeout(5):
        await refusal(speak(running), grpc.StatusCode.RESOURCE_EXHAUSTED)


@pytest.mark.start(**IMPATIENT)
async def test_a_stage_that_is_away_between_sentences_is_waited_for(running: Stack) -> None:
    """Its only replica says good-bye after the first sentence and is heard again: the second
    sentence waits.
    """
    away = asyncio.Event()

    async def leave(context: Any, sent: int) -> None:
        if sent == 12 and not away.is_set():
            away.set()
            await running.services["llm"][0].set_serving(False)
            asyncio.get_running_loop().call_later(
                0.5, lambda: asyncio.ensure_future(running.services["llm"][0].set_serving(True))
            )

    running.scripts["llm"][0].generate = leave
    await spoken(running)
    assert away.is_set()


@pytest.mark.start({"llm": 2}, **IMPATIENT)
async def test_the_next_sentence_is_not_spoken_by_another_engine(running: Stack) -> None:
    first, second = running.scripts["llm"]
    second.identity = identity_pb2.EngineIdentity(model_hash="other")
    done: list[bool] = []

    async def be_replaced(context: Any, sent: int) -> None:
        if sent == 15 and not done:
            done.append(True)
            first.identity = identity_pb2.EngineIdentity(model_hash="another yet")

    first.generate = be_replaced
    await refusal(speak(running), grpc.StatusCode.FAILED_PRECONDITION, "another engine")


@pytest.mark.start(**IMPATIENT)
async def test_a_resumed_request_is_not_spoken_by_other_engines(running: Stack) -> None:
    _, lost = await speak(running, seed=1)
    engine = lost[0].header.engine
    await spoken(running, seed=1, start_sample=5_000, engine=engine)
    running.scripts["token2wav"][0].identity = identity_pb2.EngineIdentity(model_hash="new")
    await refusal(
        speak(running, seed=1, start_sample=5_000, engine=engine),
        grpc.StatusCode.FAILED_PRECONDITION,
        f"begun by engines {engine}",
    )


@pytest.mark.start({"token2wav": 2}, **IMPATIENT)
async def test_another_engine_is_not_taken_for_a_successor(running: Stack) -> None:
    running.scripts["token2wav"][1].identity = identity_pb2.EngineIdentity(model_hash="other")
    hook(running, "token2wav", abort_once(grpc.StatusCode.UNAVAILABLE, "gone", 960))
    for _ in range(2):
        await spoken(running)
