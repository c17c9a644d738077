"""StreamingSynthesize through a real orchestrator and scripted stages: order, flush, cancel,
waiting, bounds and takeover.
"""

import asyncio
import itertools
import time
from collections.abc import Iterable
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cosyserve.v1 import audio_pb2, profile_pb2, synthesis_pb2
from tests.pipeline.calling import IMPATIENT, abort_once, all_idle, audio_of, hang
from tests.stacks.calls import all_of, check_places, refusal, refused, rest
from tests.stacks.scripted_stages import Stack, expected_audio, stack

Setup = synthesis_pb2.StreamingSynthesizeSetup
Request = synthesis_pb2.StreamingSynthesizeRequest
Response = synthesis_pb2.SynthesizeResponse
TEXT = "one sentence after another"
MODES = (Setup.MODE_SENTENCES, Setup.MODE_TOKENS)
FLUSH = Request(flush=synthesis_pb2.Flush())
CANCEL = Request(cancel=synthesis_pb2.Cancel())
pytestmark = pytest.mark.start(**IMPATIENT)


def setup(mode: int = 0, pause: int = 0, delay: int = 0, idle: int = 0, **fields: Any) -> Request:
    request = synthesis_pb2.SynthesizeRequest(sentence_pause_milliseconds=pause, **fields)
    first = Setup(request=request, mode=mode, buffer_delay_milliseconds=delay, idle_timeout_milliseconds=idle)  # type: ignore[arg-type]
    return Request(setup=first)


def texts(*fragments: str) -> list[Request]:
    return [Request(text=fragment) for fragment in fragments]


async def converse(running: Stack, messages: Iterable[Request], *, half_close: bool = True) -> list[Response]:
    call = running.stub.StreamingSynthesize(timeout=20)

    async def pour() -> None:
        for message in messages:
            await call.write(message)
        if half_close:
            await call.done_writing()

    pouring = asyncio.create_task(pour())
    try:
        return await all_of(call)
    finally:
        pouring.cancel()
        await asyncio.gather(pouring, return_exceptions=True)


async def opened(running: Stack, *messages: Request) -> Any:
    """A call after these messages."""
    call = running.stub.StreamingSynthesize(timeout=20)
    for message in messages:
        await call.write(message)
    return call


async def heard_of(call: Any, text: str) -> bytes:
    """The audio of a call that was read by hand, up to the end of `text`."""
    received = b""
    while len(received) < len(expected_audio(text)):
        received += (await call.read()).audio
    return received


@pytest.mark.parametrize("mode", MODES)
async def test_fragments_are_spoken_and_reported_like_a_whole_text(running: Stack, mode: int) -> None:
    responses = await converse(
        running, [setup(mode, seed=3), *texts("o", "ne sent", "", "ence", " ", "after anothe", "r")]
    )
    assert audio_of(responses) == expected_audio(TEXT)
    assert [response.chunk_index for response in responses] == list(range(len(responses)))
    assert (responses[0].header.seed, responses[-1].summary.sentences) == (3, 4)
    assert not responses[-1].summary.cancelled
    assert running.scripts["frontend"][0].calls == ["analyze_stream"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_sentence_is_heard_before_the_text_is_over(running: Stack, mode: int) -> None:
    call = await opened(running, setup(mode), *texts("one sent"))
    received = await heard_of(call, "one")
    await call.write(*texts("ence"))
    await call.done_writing()
    assert received + audio_of(await rest(call)) == expected_audio("one sentence")


async def test_tokens_leave_before_their_sentence_is_complete(running: Stack) -> None:
    call = await opened(running, setup(Setup.MODE_TOKENS), *texts("unfini"))
    assert await heard_of(call, "unfini") == expected_audio("unfini")
    call.cancel()
    await all_idle(running)


@pytest.mark.parametrize("mode", MODES)
async def test_a_flush_ends_the_sentence_and_a_second_one_says_nothing_new(running: Stack, mode: int) -> None:
    responses = await converse(running, [setup(mode), FLUSH, *texts("mid"), FLUSH, FLUSH, *texts("way")])
    assert (audio_of(responses), responses[-1].summary.sentences) == (expected_audio("mid way"), 2)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "no message came, expected the setup"),
        (texts("hi"), "the first message carries text, expected the setup"),
        ([Request()], "the first message carries nothing, expected the setup"),
        ([setup(), setup()], "a message after the first carries setup, expected text, flush or cancel"),
        ([setup(), Request()], "a message after the first carries nothing, expected text, flush or cancel"),
        (
            [setup(text="hi")],
            "setup.request.text is set; in StreamingSynthesize text comes in messages after the setup",
        ),
        ([setup(7)], "setup.mode is 7, no value of that number exists"),
        ([setup(delay=49)], "setup.buffer_delay_milliseconds is 49, allowed are 50 to 10000"),
        (
            [setup(Setup.MODE_TOKENS, delay=50)],
            "setup.buffer_delay_milliseconds is set; MODE_TOKENS waits for no sentence, so there is nothing to delay",
        ),
        ([setup(idle=999)], "setup.idle_timeout_milliseconds is 999, allowed are 1000 to 180000"),
        (
            [setup(Setup.MODE_TOKENS, idle=30_001)],
            "setup.idle_timeout_milliseconds is 30001, allowed are 1000 to 30000",
        ),
        ([setup(pause=10_001)], "sentence_pause_milliseconds is 10001, allowed are 0 to 10000"),
        ([setup(pause=-1)], "sentence_pause_milliseconds is -1, allowed are 0 to 10000"),
        ([setup(speed=9)], "speed is 9, allowed are 0.5 to 2.0"),
        ([setup(profile=profile_pb2.PROFILE_OFFLINE)], None),
        ([setup(), *texts("a" * 20_001)], "text has 20001 characters in one message, allowed are at most 20000"),
    ],
)
async def test_what_is_out_of_order_or_range_is_refused(
    running: Stack, messages: list[Request], message: str | None
) -> None:
    assert message in (None, (await refusal(converse(running, messages), grpc.StatusCode.INVALID_ARGUMENT)).details())
    await all_idle(running)


@pytest.mark.start(max_stream_characters=100)
async def test_the_whole_text_is_bounded(running: Stack) -> None:
    assert await refused(converse(running, [setup(), *texts("word " * 20, "one more")])) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "text has 108 characters in all, allowed are 1 to 100",
    )


@pytest.mark.parametrize("mode", MODES)
async def test_silence_of_the_caller_ends_the_stream(running: Stack, mode: int) -> None:
    begin = time.monotonic()
    assert await refused(converse(running, [setup(mode, idle=1_000), *texts("one two")], half_close=False)) == (
        grpc.StatusCode.DEADLINE_EXCEEDED,
        "no message came for 1 s after 7 characters of text; expected text, a flush, a cancel or the end of the stream",
    )
    assert 0.9 < time.monotonic() - begin < 5
    await all_idle(running)


@pytest.mark.start(first_message_seconds=1.0)
async def test_no_setup_at_all_ends_the_stream_too(running: Stack) -> None:
    expected = (grpc.StatusCode.DEADLINE_EXCEEDED, "the first message was not complete after 1 s")
    assert await refused(converse(running, [], half_close=False)) == expected


@pytest.mark.parametrize("mode", MODES)
async def test_cancel_ends_the_stream_with_a_summary_of_what_was_sent(running: Stack, mode: int) -> None:
    running.scripts["token2wav"][0].decode = lambda context, sent: hang() if sent >= 9_600 else asyncio.sleep(0)
    call = await opened(running, setup(mode), *texts("abcdefgh ijkl mnop"))
    responses = []
    while sum(len(response.audio) for response in responses) < 2 * 9_600:
        responses.append(await call.read())
    await call.write(CANCEL)
    responses += await rest(call)
    assert await call.code() is grpc.StatusCode.OK
    assert audio_of(responses) == expected_audio("abcdefgh")[: 2 * 9_600]
    summary = responses[-1].summary
    assert (summary.cancelled, summary.audio_seconds) == (True, pytest.approx(0.4))
    assert [response.chunk_index for response in responses] == list(range(len(responses)))
    await all_idle(running)


async def test_cancel_before_any_text_is_a_clean_end(running: Stack) -> None:
    (only,) = await converse(running, [setup(seed=8), CANCEL])
    assert (only.audio, only.header.seed, only.summary.cancelled) == (b"", 8, True)


@pytest.mark.start(stall_seconds=20.0, max_waiting_characters=1_000, max_stream_characters=10**8)
async def test_a_caller_ahead_of_speech_is_read_no_further(running: Stack) -> None:
    """What waits is bounded by the setting, a fragment and what the stages and the wire hold."""
    gate = asyncio.Event()
    running.scripts["token2wav"][0].decode = lambda context, sent: gate.wait()
    call = running.stub.StreamingSynthesize(timeout=60)
    fragment = "abcd " * 2_000
    written = 0

    async def pour() -> None:
        nonlocal written
        await call.write(setup())
        for _ in range(1_000):
            await call.write(Request(text=fragment))
            written += len(fragment)
        await call.write(CANCEL)

    pouring = asyncio.create_task(pour())
    await asyncio.sleep(1.0)
    assert 0 < running.scripts["frontend"][0].received_characters <= 4_000
    assert not pouring.done()
    assert written < 1_000 * len(fragment)
    gate.set()
    call.cancel()
    await asyncio.gather(pouring, return_exceptions=True)
    await all_idle(running)


async def test_the_delay_speaks_what_waits_only_when_asked_for(running: Stack) -> None:
    await heard_of(await opened(running, setup(delay=100), *texts("waiting")), "waiting")
    waiting = await opened(running, setup(), *texts("waiting"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(waiting.read(), 0.5)


@pytest.mark.parametrize("mode", MODES)
async def test_pauses_are_silence_between_sentences_counted_in_positions(running: Stack, mode: int) -> None:
    responses = await converse(running, [setup(mode, pause=1_250), *texts("one two")])
    assert audio_of(responses) == expected_audio("one") + bytes(2 * 30_000) + expected_audio("two")
    assert responses[-1].summary.audio_seconds == pytest.approx((2 * 15 * 960 + 30_000) / 24_000)
    check_places(responses)
    resumed = await converse(running, [setup(mode, pause=1_250, seed=1, start_sample=20_000), *texts("one two")])
    assert audio_of(resumed) == audio_of(responses)[40_000:]


async def test_synthesize_pauses_alike_and_upstream_not(running: Stack) -> None:
    async def said(**fields: Any) -> int:
        request = synthesis_pb2.SynthesizeRequest(**{"text": "one two"} | fields)
        return len(audio_of(await all_of(running.stub.Synthesize(request, timeout=20))))

    spoken = len(expected_audio("one two"))
    assert await said(sentence_pause_milliseconds=0) == spoken
    assert await said(sentence_pause_milliseconds=500) == spoken + 24_000
    assert await said() == spoken, "a sentence of 15 tokens is short: nothing is added behind it"
    assert await said(text="rather long") == len(expected_audio("rather long")) + 2 * 24 * 67
    assert await said(text="incredibly long") == len(expected_audio("incredibly long")) + 2 * 24 * 200
    assert await said(text="incredibly long", profile=profile_pb2.PROFILE_UPSTREAM) == len(
        expected_audio("incredibly long")
    )
    mulaw = audio_pb2.AudioFormat(encoding=audio_pb2.AUDIO_ENCODING_MULAW, sample_rate_hertz=8_000)
    assert await said(sentence_pause_milliseconds=500, audio_format=mulaw) == (spoken // 2 + 12_000) // 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stage", ["frontend", "llm", "token2wav"])
async def test_a_stage_that_dies_is_not_heard(mode: int, stage: str) -> None:
    async with stack({stage: 2}, **IMPATIENT) as running:
        sentences = itertools.count(1)

        async def analyzed(context: Any) -> None:
            if next(sentences) == 3:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

        gone = abort_once(grpc.StatusCode.UNAVAILABLE, "gone", 10)
        for script in running.scripts[stage]:
            script.analyze, script.generate, script.decode = analyzed, gone, gone
        responses = await converse(running, [setup(mode), *texts(*TEXT), *texts(" and", " on and on ")])
        assert audio_of(responses) == expected_audio(TEXT + " and on and on")
        assert responses[-1].summary.resumptions == 1
        assert sum(len(script.calls) for script in running.scripts[stage]) >= 2
        if stage == "frontend":
            assert [index for script in running.scripts[stage] for index in script.first_indices] in (
                [0, 2],
                [2, 0],
                [0, 1],
                [1, 0],
            )
            # The replica that takes over receives the language in which the text before was read.
            for script in running.scripts[stage]:
                assert script.last_languages == [f"x-{index}" if index else "" for index in script.first_indices]
        if stage == "llm":
            assert any(replayed for script in running.scripts[stage] for replayed in script.replayed)


@pytest.mark.start(stall_seconds=20.0)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["setup", "text", "flush", "cancel", "nothing"]), max_size=8), st.sampled_from(MODES))
@example(["setup", "text", "flush", "text"], MODES[0])
@example(["setup", "text", "flush", "text"], MODES[1])
async def test_any_order_of_messages_ends_in_the_status_that_it_should(
    running: Stack, kinds: list[str], mode: int
) -> None:
    kinds_of_message = {
        "setup": setup(mode),
        "text": Request(text="some word"),
        "flush": FLUSH,
        "cancel": CANCEL,
        "nothing": Request(),
    }
    behind = kinds[1:] if kinds[:1] == ["setup"] else None
    bad = next((kind for kind in behind or () if kind in ("setup", "nothing", "cancel")), None)
    # Nothing is written behind what ends the call: grpc.aio replaces a status by its own when a
    # write crosses it.
    end = 1 if behind is None else len(kinds) if bad is None else kinds.index(bad, 1) + 1
    messages = [kinds_of_message[kind] for kind in kinds[:end]]
    if behind is None or bad in ("setup", "nothing"):
        await refusal(converse(running, messages), grpc.StatusCode.INVALID_ARGUMENT)
    else:
        last = (await converse(running, messages))[-1]
        assert last.HasField("summary")
        assert last.summary.cancelled == (bad == "cancel")
    await all_idle(running)
