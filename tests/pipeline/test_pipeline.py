"""The orchestrator over real gRPC, also against stages that die, hang, refuse or are another
engine: what the caller hears and which status it reads.
"""

import asyncio
import itertools
from typing import Any

import grpc
import pytest

from cosyserve.rpc.calls import retry_delay
from cosyserve.v1 import identity_pb2, synthesis_pb2, synthesis_pb2_grpc
from tests.pipeline.calling import (
    IMPATIENT,
    TEXT,
    abort_once,
    all_idle,
    busy,
    hang,
    hang_up,
    hold_back,
    hook,
    once,
    speak,
    spoken,
    unary,
)
from tests.stacks.calls import check_places, refusal, refused, rest
from tests.stacks.in_process import until_serving
from tests.stacks.scripted_stages import Stack, expected_audio, stack


async def test_audio_comes_in_order_without_gap_and_the_last_message_sums_up(running: Stack) -> None:
    responses = await spoken(running, seed=7)
    check_places(responses)
    assert [response.chunk_index for response in responses] == list(range(len(responses)))
    assert [response.HasField("header") for response in responses] == [True] + [False] * (len(responses) - 1)
    assert [response.HasField("summary") for response in responses] == [False] * (len(responses) - 1) + [True]
    assert (responses[0].header.seed, responses[0].header.voice) == (7, "anna")
    summary = responses[-1].summary
    assert (summary.sentences, summary.resumptions) == (len(TEXT.split()), 0)
    assert summary.audio_seconds == len(expected_audio(TEXT)) / 48_000


async def test_a_seed_is_chosen_and_returned(running: Stack) -> None:
    assert len({(await speak(running, "word"))[1][0].header.seed for _ in range(3)}) == 3


@pytest.mark.parametrize("start", [0, 1, 959, 960, 20_000])
async def test_resume_gives_the_tail(running: Stack, start: int) -> None:
    assert (await spoken(running, seed=1, start_sample=start))[0].start_sample == start


async def test_first_sound_is_when_the_first_audio_leaves_also_behind_a_resume_point(running: Stack) -> None:
    async def slow(context: Any, sent: int) -> None:
        await asyncio.sleep(0.02 if sent < 9_600 else 0.0)

    hook(running, "token2wav", slow)
    _, whole = await speak(running, seed=1)
    _, resumed = await speak(running, seed=1, start_sample=9_600)
    assert whole[-1].summary.first_sound_milliseconds < 200 < resumed[-1].summary.first_sound_milliseconds


async def test_resume_behind_the_end_is_out_of_range(running: Stack) -> None:
    await refusal(speak(running, "word", seed=1, start_sample=10**7), grpc.StatusCode.OUT_OF_RANGE, "19200 samples")


async def test_hanging_up_stops_every_stage(running: Stack) -> None:
    running.scripts["token2wav"][0].decode = hang
    call = running.stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=TEXT))
    await hang_up(running, call, busy(running, "token2wav"))


async def test_the_callers_deadline_ends_the_work_everywhere(running: Stack) -> None:
    running.scripts["token2wav"][0].decode = hang
    call = running.stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=TEXT), timeout=0.3)
    await refusal(rest(call), grpc.StatusCode.DEADLINE_EXCEEDED)
    await all_idle(running)


@pytest.mark.start(max_request_seconds=0.3)
async def test_the_servers_own_limit_on_time(running: Stack) -> None:
    running.scripts["token2wav"][0].decode = hang
    assert await refused(speak(running)) == (grpc.StatusCode.DEADLINE_EXCEEDED, "the request took longer than 0.3 s")
    await all_idle(running)


@pytest.mark.start(max_streams=4)
async def test_overload_limit_4_and_12_clients(running: Stack) -> None:
    """Four are served, eight get a retry hint at once, none hangs, none is lost in
    mid-stream.
    """
    gate = hold_back(running)
    clients = [asyncio.create_task(speak(running)) for _ in range(12)]
    for client in itertools.islice(asyncio.as_completed(clients), 8):
        error = await refusal(client, grpc.StatusCode.RESOURCE_EXHAUSTED, "4 of 4 streams are in use")
        assert (retry_delay(error) or 0) > 0
    gate.set()
    results = await asyncio.gather(*clients, return_exceptions=True)
    served = [result for result in results if not isinstance(result, BaseException)]
    assert [audio for audio, _ in served] == [expected_audio(TEXT)] * 4


async def test_sentences_overlap_but_not_without_bound(running: Stack) -> None:
    """While the first sentence is spoken the second is decoded and the third's tokens are made; the
    fourth is not begun.
    """
    running.scripts["token2wav"][0].decode = hang
    reading = asyncio.create_task(speak(running, "a bb ccc dddd eeeee"))
    await busy(running, "token2wav")
    await asyncio.sleep(0.3)
    begun = [
        running.scripts[name][0].calls.count(call) for name, call in (("llm", "generate"), ("token2wav", "decode"))
    ]
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert begun == [3, 2]


async def test_an_unknown_voice_is_refused_with_the_known_ones(running: Stack) -> None:
    assert await refused(speak(running, voice="nobody")) == (
        grpc.StatusCode.NOT_FOUND,
        "no voice 'nobody'; known: anna",
    )


@pytest.mark.start(max_unary_seconds=5.0)
async def test_unary_gives_the_same_audio_at_once_and_refuses_what_is_too_long(running: Stack) -> None:
    response = await unary(running, seed=3)
    assert (response.audio, response.header.seed) == (expected_audio(TEXT), 3)
    await refusal(
        unary(running, "much " * 10), grpc.StatusCode.INVALID_ARGUMENT, "at most 5 s are given at once; use Synthesize"
    )


async def test_unary_gives_no_more_than_one_message_holds(running: Stack) -> None:
    """43 s are too long at 48 kHz, where 4 MB are 41.7 s, and welcome at 24 kHz."""
    text = "much " * 54
    at_48_khz = unary(running, text, audio_format={"sample_rate_hertz": 48_000})
    await refusal(at_48_khz, grpc.StatusCode.INVALID_ARGUMENT, "at most 42 s are given at once")
    assert (await unary(running, text)).summary.audio_seconds == pytest.approx(43.2)


@pytest.mark.start(reader_seconds=0.3)
async def test_a_caller_that_does_not_read_is_hung_up_on(running: Stack) -> None:
    """The stages are freed at once; the caller learns why when it reads on."""
    small_window = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{running.orchestrator.port}", options=small_window) as channel:
        stub = synthesis_pb2_grpc.SynthesisServiceStub(channel)
        call = stub.Synthesize(synthesis_pb2.SynthesizeRequest(text="endless " * 200))
        await call.read()
        await asyncio.sleep(1.5)
        await all_idle(running)
        spoken = running.scripts["token2wav"][0].calls.count("decode")
        assert await refused(rest(call)) == (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            "the caller took no audio for 0.3 s",
        )
    assert running.scripts["token2wav"][0].calls.count("decode") == spoken < 200


async def test_resampled_audio_does_not_depend_on_the_cuts(running: Stack) -> None:
    audio, _ = await speak(running, seed=1, audio_format={"sample_rate_hertz": 16_000})
    tail, _ = await speak(running, seed=1, audio_format={"sample_rate_hertz": 16_000}, start_sample=5_000)
    assert len(audio) // 2 == len(expected_audio(TEXT)) // 2 * 16 // 24
    assert tail == audio[10_000:]


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


@pytest.mark.start(replicas={"token2wav": 2}, **IMPATIENT)
async def test_a_stage_that_is_stopped_is_replaced_by_the_other_replica(running: Stack) -> None:
    reached = asyncio.Event()

    async def wait_to_be_stopped(_: Any) -> None:
        reached.set()
        await hang()

    hook(running, "token2wav", once(4_800, wait_to_be_stopped))
    request = asyncio.create_task(spoken(running))
    await reached.wait()
    await running.kill("token2wav", 0 if running.scripts["token2wav"][0].active else 1)
    assert (await request)[-1].summary.resumptions == 1


@pytest.mark.start(replicas={"llm": 2}, **IMPATIENT)
async def test_a_stage_that_hangs_is_given_up_for_another(running: Stack) -> None:
    hook(running, "llm", once(0, hang))
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

    async def leave(_: Any) -> None:
        away.set()
        await running.services["llm"][0].set_serving(False)
        asyncio.get_running_loop().call_later(
            0.5, lambda: asyncio.ensure_future(running.services["llm"][0].set_serving(True))
        )

    hook(running, "llm", once(12, leave))
    await spoken(running)
    assert away.is_set()


@pytest.mark.start(replicas={"llm": 2}, **IMPATIENT)
async def test_the_next_sentence_is_not_spoken_by_another_engine(running: Stack) -> None:
    first, second = running.scripts["llm"]
    second.identity = identity_pb2.EngineIdentity(model_hash="other")

    async def be_replaced(_: Any) -> None:
        first.identity = identity_pb2.EngineIdentity(model_hash="another yet")

    first.generate = once(15, be_replaced)
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


@pytest.mark.start(replicas={"token2wav": 2}, **IMPATIENT)
async def test_another_engine_is_not_taken_for_a_successor(running: Stack) -> None:
    running.scripts["token2wav"][1].identity = identity_pb2.EngineIdentity(model_hash="other")
    hook(running, "token2wav", abort_once(grpc.StatusCode.UNAVAILABLE, "gone", 960))
    for _ in range(2):
        await spoken(running)
