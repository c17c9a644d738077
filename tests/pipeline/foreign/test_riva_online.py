"""Riva's SynthesizeOnline: one request, several at once, or one after the other as a text is
written.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from cosyserve.foreign import riva_pb2
from cosyserve.foreign import riva_tts_pb2 as riva
from tests.pipeline.calling import TEXT, all_idle, busy, hold_back
from tests.pipeline.foreign.riva_calls import asked, audio_of, online, stub
from tests.stacks.calls import refusal
from tests.stacks.scripted_stages import Stack, expected_audio

WHOLE = expected_audio(TEXT)


async def test_one_request_as_a_client_of_before_streams_sends_it(running: Stack) -> None:
    """Its method takes one message; on the wire that is a stream of one."""
    method = running.channel.unary_stream(
        "/nvidia.riva.tts.RivaSpeechSynthesis/SynthesizeOnline",
        request_serializer=riva.SynthesizeSpeechRequest.SerializeToString,
        response_deserializer=riva.SynthesizeSpeechResponse.FromString,
    )
    call = method(asked(configuration={"seed": "7"}))
    responses = [response async for response in call]
    assert audio_of(responses) == WHOLE
    assert len(responses) > 3
    assert all(response.audio and len(response.audio) % 2 == 0 for response in responses)
    assert dict(await call.trailing_metadata())["x-seed"] == "7"


@pytest.mark.parametrize(
    "parts",
    [[TEXT], TEXT.split(), ["one sentence ", "after", " another"], ["", "one sentence", "", "after another"]],
)
async def test_several_requests_are_one_text(running: Stack, parts: list[str]) -> None:
    assert audio_of(await online(running, [asked(part) for part in parts])) == WHOLE


async def test_options_may_be_given_once(running: Stack) -> None:
    further = [riva.SynthesizeSpeechRequest(text=part) for part in ("sentence", "after another")]
    assert audio_of(await online(running, [asked("one"), *further])) == WHOLE


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("voice_name", "somebody"),
        ("sample_rate_hz", 8_000),
        ("encoding", riva_pb2.FLAC),
        ("language_code", "zh-CN"),
        ("custom_dictionary", "a  b"),
        ("custom_configuration", {"seed": "8"}),
        ("enable_word_time_offsets", True),
        ("zero_shot_data", riva.ZeroShotData(audio_prompt=b"1")),
    ],
)
async def test_other_options_further_down_are_refused(running: Stack, option: str, value: Any) -> None:
    other = riva.SynthesizeSpeechRequest(**{"text": "two", option: value})
    said = f"{option} of request 2 differs from that of the first one"
    await refusal(online(running, [asked("one"), other]), grpc.StatusCode.INVALID_ARGUMENT, said)
    await all_idle(running)


async def test_a_sentence_is_spoken_before_the_next_request_comes(running: Stack) -> None:
    """The script speaks a word when a blank follows it or at a flush: nothing but the flush behind
    the full stop can let it be heard here.
    """
    heard = asyncio.Event()

    async def requests() -> AsyncIterator[riva.SynthesizeSpeechRequest]:
        yield asked("one two.")
        await heard.wait()
        yield asked("three")

    audio = b""
    async for response in stub(running).SynthesizeOnline(requests(), timeout=20):
        audio += response.audio
        if len(audio) >= len(expected_audio("one two.")):
            heard.set()
    assert audio == expected_audio("one two. three")


async def test_words_have_times(running: Stack) -> None:
    for name in ("frontend", "llm"):
        running.scripts[name][0].timed = True
    responses = await online(running, [asked("one two.", enable_word_time_offsets=True)])
    words = [(word.word, word.start_time, word.end_time) for response in responses for word in response.meta.words]
    assert words == [("one", 0, 600), ("two", 600, 1400)]
    assert not any(response.meta.words for response in await online(running, [asked("one two.")]))


async def test_the_id_comes_with_each_response(running: Stack) -> None:
    responses = await online(running, [asked(id=riva_pb2.RequestId(value="7"))])
    assert {response.id.value for response in responses} == {"7"}


async def test_without_a_request(running: Stack) -> None:
    await refusal(online(running, []), grpc.StatusCode.INVALID_ARGUMENT, "no request came")


async def test_a_caller_that_hangs_up_frees_every_stage(running: Stack) -> None:
    hold_back(running)

    async def requests() -> AsyncIterator[riva.SynthesizeSpeechRequest]:
        yield asked("one two.")
        await asyncio.Event().wait()

    call = stub(running).SynthesizeOnline(requests())
    listening = asyncio.create_task(call.read())
    await busy(running, "token2wav")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    await all_idle(running)


@pytest.mark.start(idle_seconds=1.0)
async def test_a_caller_that_sends_nothing_more(running: Stack) -> None:
    async def requests() -> AsyncIterator[riva.SynthesizeSpeechRequest]:
        yield asked("one two.")
        await asyncio.Event().wait()

    async def call() -> None:
        async for _ in stub(running).SynthesizeOnline(requests(), timeout=20):
            pass

    await refusal(call(), grpc.StatusCode.DEADLINE_EXCEEDED, "no message came for 1 s")
    await all_idle(running)
