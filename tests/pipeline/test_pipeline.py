"""The orchestrator against stages that fail in every way, over real gRPC: what the caller hears and
which status it reads.
"""

import asyncio
from typing import Any

import grpc
import pytest
from cosyserve.rpc.calls import retry_delay

from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tests.pipeline.calling import TEXT, all_idle, busy, hang, speak, status_of
from tests.stacks.scripted_stages import expected_audio, stack


async def test_audio_comes_in_order_without_gap_and_the_last_message_sums_up() -> None:
    async with stack() as running:
        audio, responses = await speak(running, seed=7)
    assert audio == expected_audio(TEXT)
    assert [response.chunk_index for response in responses] == list(range(len(responses)))
    place = 0
    for response in responses:
        assert response.start_sample == place
        place += len(response.audio) // 2
    assert [response.HasField("header") for response in responses] == [True] + [False] * (len(responses) - 1)
    assert [response.HasField("summary") for response in responses] == [False] * (len(responses) - 1) + [True]
    assert (responses[0].header.seed, responses[0].header.voice) == (7, "anna")
    summary = responses[-1].summary
    assert summary.sentences == len(TEXT.split())
    assert summary.audio_seconds == len(audio) / 48_000
    assert summary.resumptions == 0


async def test_a_seed_is_chosen_and_returned() -> None:
    async with stack() as running:
        seeds = {(await speak(running, "word"))[1][0].header.seed for _ in range(3)}
    assert len(seeds) == 3


@pytest.mark.parametrize("start", [0, 1, 959, 960, 20_000])
async def test_resume_gives_the_tail(start: int) -> None:
    async with stack() as running:
        audio, responses = await speak(running, seed=1, start_sample=start)
    assert audio == expected_audio(TEXT)[2 * start :]
    assert responses[0].start_sample == start


async def test_first_sound_is_when_the_first_audio_leaves_also_behind_a_resume_point() -> None:
    async with stack() as running:

        async def slow(context: Any, sent: int) -> None:
            await asyncio.sleep(0.02 if sent < 9_600 else 0.0)

        running.scripts["token2wav"][0].decode = slow
        _, whole = await speak(running, seed=1)
        _, resumed = await speak(running, seed=1, start_sample=9_600)
    assert whole[-1].summary.first_sound_milliseconds < 200 < resumed[-1].summary.first_sound_milliseconds


async def test_resume_behind_the_end_is_out_of_range() -> None:
    async with stack() as running:
        error = await status_of(running, "word", seed=1, start_sample=10**7)
    assert error.code() == grpc.StatusCode.OUT_OF_RANGE
    assert "19200 samples" in error.details()


async def test_hanging_up_stops_every_stage() -> None:
    async with stack() as running:
        running.scripts["token2wav"][0].decode = hang
        call = running.stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=TEXT))
        reading = asyncio.create_task(call.read())
        await busy(running, "token2wav")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await all_idle(running)


async def test_the_callers_deadline_ends_the_work_everywhere() -> None:
    async with stack() as running:
        running.scripts["token2wav"][0].decode = hang
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in running.stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=TEXT), timeout=0.3):
                pass
        await all_idle(running)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


async def test_the_servers_own_limit_on_time() -> None:
    async with stack(max_request_seconds=0.3) as running:
        running.scripts["token2wav"][0].decode = hang
        error = await status_of(running)
        await all_idle(running)
    assert (error.code(), error.details()) == (grpc.StatusCode.DEADLINE_EXCEEDED, "the request took longer than 0.3 s")


async def test_overload_limit_4_and_12_clients() -> None:
    """Four are served, eight are told at once when to come back, none hangs, none is lost in
    mid-stream.
    """
    async with stack(max_streams=4) as running:
        gate = asyncio.Event()

        async def wait_at_gate(context: Any, sent: int) -> None:
            await gate.wait()

        running.scripts["token2wav"][0].decode = wait_at_gate
        clients = [asyncio.create_task(speak(running)) for _ in range(12)]
        refused = []
        for client in asyncio.as_completed(clients):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client
            refused.append(caught.value)
            if len(refused) == 8:
                break
        gate.set()
        served = [
            result
            for result in await asyncio.gather(*clients, return_exceptions=True)
            if not isinstance(result, BaseException)
        ]
    assert all(error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED for error in refused)
    assert all((retry_delay(error) or 0) > 0 for error in refused)
    assert all(error.details().startswith("4 of 4 streams are in use") for error in refused)
    assert [audio for audio, _ in served] == [expected_audio(TEXT)] * 4


async def test_sentences_overlap_but_not_without_bound() -> None:
    """While the first sentence is spoken the second is decoded and the third's tokens are made; the
    fourth is not begun.
    """
    async with stack() as running:
        running.scripts["token2wav"][0].decode = hang
        reading = asyncio.create_task(speak(running, "a bb ccc dddd eeeee"))
        await busy(running, "token2wav")
        await asyncio.sleep(0.3)
        generated = running.scripts["llm"][0].calls.count("generate")
        decoded = running.scripts["token2wav"][0].calls.count("decode")
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert (generated, decoded) == (3, 2)


async def test_unknown_voice_is_told_with_the_known_ones() -> None:
    async with stack() as running:
        error = await status_of(running, voice="nobody")
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "no voice 'nobody'; known: anna")


async def test_unary_gives_the_same_audio_at_once_and_refuses_what_is_too_long() -> None:
    async with stack(max_unary_seconds=5.0) as running:
        response = await running.stub.SynthesizeUnary(
            synthesis_pb2.SynthesizeUnaryRequest(sentence_pause_milliseconds=0, text=TEXT, seed=3)
        )
        assert response.audio == expected_audio(TEXT)
        assert response.header.seed == 3
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.stub.SynthesizeUnary(
                synthesis_pb2.SynthesizeUnaryRequest(sentence_pause_milliseconds=0, text="much " * 10)
            )
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "at most 5 s are given at once; use Synthesize" in caught.value.details()


async def test_unary_gives_no_more_than_one_message_holds() -> None:
    """43 s are too long at 48 kHz, where 4 MB are 41.7 s, and welcome at 24 kHz."""
    text = "much " * 54
    async with stack() as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.stub.SynthesizeUnary(
                synthesis_pb2.SynthesizeUnaryRequest(
                    sentence_pause_milliseconds=0, text=text, audio_format={"sample_rate_hertz": 48_000}
                )
            )
        response = await running.stub.SynthesizeUnary(
            synthesis_pb2.SynthesizeUnaryRequest(sentence_pause_milliseconds=0, text=text)
        )
    assert "at most 42 s are given at once" in caught.value.details()
    assert response.summary.audio_seconds == pytest.approx(43.2)


async def test_a_caller_that_does_not_read_is_hung_up_on() -> None:
    """The stages are freed at once; the caller learns why when it reads on."""
    small_window = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536)]
    async with stack(reader_seconds=0.3) as running:  # noqa: SIM117 - the channel's address comes from the stack
        async with grpc.aio.insecure_channel(f"127.0.0.1:{running.orchestrator.port}", options=small_window) as channel:
            stub = synthesis_pb2_grpc.SynthesisServiceStub(channel)
            call = stub.Synthesize(synthesis_pb2.SynthesizeRequest(text="endless " * 200))
            await call.read()
            await asyncio.sleep(1.5)
            await all_idle(running)
            spoken = running.scripts["token2wav"][0].calls.count("decode")
            error = await _read_to_the_end(call)
    assert (error.code(), error.details()) == (grpc.StatusCode.DEADLINE_EXCEEDED, "the caller took no audio for 0.3 s")
    assert running.scripts["token2wav"][0].calls.count("decode") == spoken < 200


async def test_resampled_audio_does_not_depend_on_the_cuts() -> None:
    async with stack() as running:
        audio, _ = await speak(running, seed=1, audio_format={"sample_rate_hertz": 16_000})
        tail, _ = await speak(running, seed=1, audio_format={"sample_rate_hertz": 16_000}, start_sample=5_000)
    assert len(audio) // 2 == len(expected_audio(TEXT)) // 2 * 16 // 24
    assert tail == audio[10_000:]


async def _read_to_the_end(call: Any) -> grpc.aio.AioRpcError:
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the call ended well")
