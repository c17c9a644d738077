"""Stages that die, hang, refuse or are another engine: what the caller hears and which status it
reads.
"""

import asyncio
from typing import Any

import grpc
import pytest
from cosyserve.rpc.calls import retry_delay

from cosyserve.v1 import identity_pb2
from tests.pipeline.calling import IMPATIENT, TEXT, abort_once, all_idle, hang, speak, status_of
from tests.stacks.scripted_stages import expected_audio, stack, until_serving


@pytest.mark.parametrize("killed_at", [4, 8, 16])
async def test_llm_dies_and_its_successor_goes_on_behind_the_tokens_already_made(killed_at: int) -> None:
    async with stack({"llm": 2}, **IMPATIENT) as running:
        for script in running.scripts["llm"]:
            script.generate = None
        hook = abort_once(grpc.StatusCode.UNAVAILABLE, "gone", killed_at)
        for script in running.scripts["llm"]:
            script.generate = hook
        audio, responses = await speak(running)
        replayed = [count for script in running.scripts["llm"] for count in script.replayed]
    assert audio == expected_audio(TEXT)
    assert max(replayed) >= killed_at
    assert responses[-1].summary.resumptions == 1


@pytest.mark.parametrize("killed_at", [0, 960, 9_600])
async def test_token2wav_dies_and_its_successor_sends_only_what_was_not_heard(killed_at: int) -> None:
    async with stack({"token2wav": 2}, **IMPATIENT) as running:
        hook = abort_once(grpc.StatusCode.UNAVAILABLE, "gone", killed_at)
        for script in running.scripts["token2wav"]:
            script.decode = hook
        audio, responses = await speak(running)
    assert audio == expected_audio(TEXT)
    assert responses[-1].summary.resumptions == 1


async def test_a_stage_that_is_stopped_is_replaced_by_the_other_replica() -> None:
    async with stack({"token2wav": 2}, **IMPATIENT) as running:
        reached = asyncio.Event()

        async def wait_to_be_stopped(context: Any, sent: int) -> None:
            if sent >= 4_800 and not reached.is_set():
                reached.set()
                await asyncio.Event().wait()

        for script in running.scripts["token2wav"]:
            script.decode = wait_to_be_stopped
        request = asyncio.create_task(speak(running))
        await reached.wait()
        await running.kill("token2wav", 0 if running.scripts["token2wav"][0].active else 1)
        audio, responses = await request
    assert audio == expected_audio(TEXT)
    assert responses[-1].summary.resumptions == 1


async def test_a_stage_that_hangs_is_given_up_for_another() -> None:
    async with stack({"llm": 2}, **IMPATIENT) as running:
        hung: list[bool] = []

        async def hang_once(context: Any, sent: int) -> None:
            if not hung:
                hung.append(True)
                await hang()

        for script in running.scripts["llm"]:
            script.generate = hang_once
        audio, _ = await speak(running)
    assert audio == expected_audio(TEXT)


@pytest.mark.parametrize("stage_name", ["frontend", "llm", "token2wav"])
async def test_a_peer_that_hangs_is_named_with_how_long_it_was_waited_for(stage_name: str) -> None:
    async with stack(stall_seconds=0.3, recovery_seconds=0.2, attempts=1) as running:
        hook = {"frontend": "analyze", "llm": "generate", "token2wav": "decode"}[stage_name]
        setattr(running.scripts[stage_name][0], hook, hang)
        error = await status_of(running)
    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert stage_name in error.details()
    assert "gave no answer for 0.3 s" in error.details()


@pytest.mark.parametrize("stage_name", ["frontend", "llm", "token2wav"])
async def test_a_peer_that_is_down_is_named_at_once_and_health_says_so(stage_name: str) -> None:
    async with stack(**IMPATIENT) as running:
        await running.kill(stage_name, 0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{running.orchestrator.port}") as channel:
            await until_serving(channel, serving=False)
        error = await status_of(running)
    assert error.code() == grpc.StatusCode.UNAVAILABLE
    assert error.details() == f"no replica of {stage_name} is serving"
    assert retry_delay(error) == 1.0


@pytest.mark.parametrize(
    ("stage_name", "code"),
    [
        ("llm", grpc.StatusCode.INTERNAL),
        ("token2wav", grpc.StatusCode.INTERNAL),
        ("llm", grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
async def test_an_error_of_a_stage_in_mid_stream_reaches_the_caller(stage_name: str, code: grpc.StatusCode) -> None:
    async with stack(**IMPATIENT) as running:
        script = running.scripts[stage_name][0]
        setattr(script, {"llm": "generate", "token2wav": "decode"}[stage_name], abort_once(code, "so it is", 4))
        error = await status_of(running)
        await all_idle(running)
    assert error.code() == code
    assert "so it is" in error.details()
    assert stage_name in error.details()


async def test_a_stage_that_is_full_between_sentences_is_waited_for() -> None:
    """The caller has heard the first sentence: the second waits for a place instead of being
    lost.
    """
    async with stack(**IMPATIENT) as running:
        script = running.scripts["token2wav"][0]
        refusals = iter([False, True, True, False, False, False])

        async def full(context: Any, sent: int) -> None:
            if sent == 0 and next(refusals):
                await asyncio.sleep(0.05)
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")

        script.decode = full
        audio, _ = await speak(running)
    assert audio == expected_audio(TEXT)


async def test_a_stage_that_is_full_at_the_start_refuses_at_once() -> None:
    async with stack(recovery_seconds=30.0) as running:
        script = running.scripts["token2wav"][0]
        script.decode = abort_once(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", 0)
        async with asyncio.timeout(5):
            error = await status_of(running)
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_stage_that_is_away_between_sentences_is_waited_for() -> None:
    """Its only replica says good-bye after the first sentence and is heard again: the second
    sentence waits.
    """
    async with stack(**IMPATIENT) as running:
        away = asyncio.Event()

        async def leave(context: Any, sent: int) -> None:
            if sent == 12 and not away.is_set():
                away.set()
                await running.services["llm"][0].set_serving(False)
                asyncio.get_running_loop().call_later(
                    0.5, lambda: asyncio.ensure_future(running.services["llm"][0].set_serving(True))
                )

        running.scripts["llm"][0].generate = leave
        audio, _ = await speak(running)
    assert away.is_set()
    assert audio == expected_audio(TEXT)


async def test_the_next_sentence_is_not_spoken_by_another_engine() -> None:
    async with stack({"llm": 2}, **IMPATIENT) as running:
        first, second = running.scripts["llm"]
        second.identity = identity_pb2.EngineIdentity(model_hash="other")
        done: list[bool] = []

        async def be_replaced(context: Any, sent: int) -> None:
            if sent == 15 and not done:
                done.append(True)
                first.identity = identity_pb2.EngineIdentity(model_hash="another yet")

        first.generate = be_replaced
        error = await status_of(running)
    assert (error.code(), "another engine" in error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, True)


async def test_a_resumed_request_is_not_spoken_by_other_engines() -> None:
    async with stack(**IMPATIENT) as running:
        _, lost = await speak(running, seed=1)
        engine = lost[0].header.engine
        audio, _ = await speak(running, seed=1, start_sample=5_000, engine=engine)
        running.scripts["token2wav"][0].identity = identity_pb2.EngineIdentity(model_hash="new")
        error = await status_of(running, seed=1, start_sample=5_000, engine=engine)
    assert audio == expected_audio(TEXT)[10_000:]
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert f"begun by engines {engine}" in error.details()


async def test_another_engine_is_not_taken_for_a_successor() -> None:
    async with stack({"token2wav": 2}, **IMPATIENT) as running:
        running.scripts["token2wav"][1].identity = identity_pb2.EngineIdentity(model_hash="other")
        hook = abort_once(grpc.StatusCode.UNAVAILABLE, "gone", 960)
        for script in running.scripts["token2wav"]:
            script.decode = hook
        for _ in range(2):
            audio, _ = await speak(running)
            assert audio == expected_audio(TEXT)
