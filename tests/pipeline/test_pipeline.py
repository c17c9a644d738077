"""The orchestrator against stages that fail in every way, over real gRPC: what the caller hears and
which status it reads.
"""

import asyncio
import itertools
from typing import Any

import grpc
import pytest

from cosyserve.rpc.calls import retry_delay
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tests.pipeline.calling import (
    TEXT,
    all_idle,
    busy,
    check_places,
    hang,
    hang_up,
    hold_back,
    hook,
    speak,
    spoken,
    unary,
)
from tests.stacks.calls import refusal, refused, rest
from tests.stacks.scripted_stages import Stack, expected_audio


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
    seeds = {(await speak(running, "word"))[1][0].header.seed for _ in range(3)}
    assert len(seeds) == 3


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
