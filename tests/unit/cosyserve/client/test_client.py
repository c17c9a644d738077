"""The client of the public door, against a door that does as it is told."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest

from cosyserve import errors
from cosyserve.audio.encoding import Encoding
from cosyserve.client import AsyncClient
from cosyserve.client import speech as client_speech
from cosyserve.client.types import Chunk, Header, Prompt
from cosyserve.v1 import profile_pb2, synthesis_pb2, voice_pb2
from tests.unit.cosyserve.client.serving import RESPONSE, WHOLE, Answer, answering, complete, opened, speech_of


def _broken_after(count: int, retry_after: float | None = 0.01) -> Answer:
    return answering(
        lambda request: speech_of(request)[:count], errors.Unavailable("going away", retry_after=retry_after)
    )


async def test_chunks_header_and_summary() -> None:
    async with opened(complete) as (client, door):
        speech = client.synthesize(
            "Hello.",
            voice="ann",
            speed=1.5,
            sample_rate=16_000,
            first_hop_tokens=9,
            growth="exponential",
            max_hop_tokens=50,
        )
        assert speech.header is None
        chunks = [chunk async for chunk in speech]
    assert chunks == [Chunk(WHOLE[50 * i : 50 * i + 50], i, 25 * i) for i in range(4)]
    assert speech.header == Header(77, "ann", Encoding.LINEAR16, 16_000, "continuous", "")
    assert (speech.summary.audio_seconds, speech.summary.sentences, speech.summary.resumptions) == (2.5, 2, 1)
    assert speech.summary.first_sound == {"frontend": 1, "llm_prefill": 2, "llm_decode": 3, "flow": 4, "vocoder": 5}
    request = door.requests[0]
    assert not request.HasField("seed")
    assert (request.text, request.speed, request.profile) == ("Hello.", 1.5, profile_pb2.PROFILE_CONTINUOUS)
    assert (request.hops.first_hop_tokens, request.hops.max_hop_tokens) == (9, 50)
    assert request.hops.growth == profile_pb2.HopSchedule.GROWTH_EXPONENTIAL


@pytest.mark.parametrize(
    ("how", "chunks"),
    [
        pytest.param(
            {"encoding": Encoding.ALAW, "sample_rate": 8_000},
            [Chunk(WHOLE[at : at + 50], at // 50, at) for at in range(0, 200, 50)],
            id="eight-bit samples are counted as such",
        ),
        pytest.param({"seed": 77, "start_sample": 75}, [Chunk(WHOLE[150:], 0, 75)], id="a caller that resumes by hand"),
    ],
)
async def test_samples_are_counted_from_where_the_caller_begins(how: dict[str, Any], chunks: list[Chunk]) -> None:
    async with opened(complete) as (client, _):
        assert [chunk async for chunk in client.synthesize("x", **how)] == chunks


def _spoilt(spoil: Callable[[list[Any]], list[Any]]) -> Answer:
    return answering(lambda request: spoil(speech_of(request)))


def _with_onset(onset: synthesis_pb2.Onset, broken_after: int | None = None) -> Answer:
    def messages(request: Any) -> list[Any]:
        found = speech_of(request)
        found[0].header.onset = onset
        found[0].header.removed_start_milliseconds = 160.5
        return found[:broken_after]

    return answering(messages, None if broken_after is None else errors.Unavailable("going away", retry_after=0.01))


LOST = errors.Unavailable("going away", retry_after=0.01)
FULL = errors.Overloaded("4 of 4 streams are in use", retry_after=0.5)
RAISED: dict[str, tuple[list[Answer], dict[str, Any], errors.CosyserveError, int, int]] = {
    "a stream without its end": (
        [_spoilt(lambda messages: messages[:-1])],
        {},
        errors.InternalFault("ended without a summary after 100 samples"),
        1,
        4,
    ),
    "a chunk is missing": (
        [_spoilt(lambda messages: messages[:1] + messages[2:])],
        {},
        errors.InternalFault("chunk 2 arrived where 1 was due"),
        1,
        1,
    ),
    "samples are missing": (
        [_spoilt(lambda messages: [messages[0], RESPONSE(audio=b"ab", chunk_index=1, start_sample=26)])],
        {},
        errors.InternalFault("begins at sample 26, expected 25"),
        1,
        1,
    ),
    "only a lost connection is taken up again": ([answering(lambda _: [], FULL)], {"resumptions": 3}, FULL, 1, 0),
    "tries without progress are bounded": (
        [_broken_after(1), _broken_after(0)],
        {"resumptions": 2, "resume_seconds": 0},
        LOST,
        3,
        1,
    ),
    "what never began": ([_broken_after(0)], {}, LOST, 1, 0),
    "what shall not be resumed": ([_broken_after(2)], {"seed": 3, "resume_seconds": 0}, LOST, 1, 2),
    "a silent server": (
        [answering(lambda _: [], pause=60)],
        {"timeout": 0.2},
        errors.DeadlineExceeded("eadline"),
        1,
        0,
    ),
    # One of the release before, which knows no onset.
    "a server that cuts otherwise cannot take up a stream": (
        [_with_onset(synthesis_pb2.ONSET_TRIMMED, 1), complete],
        {"resumptions": 1},
        errors.InternalFault("took up a trimmed onset with a natural one"),
        2,
        1,
    ),
}
"""What the server answers, how it is asked, what is raised, after how many requests and chunks."""


@pytest.mark.parametrize(("answers", "how", "error", "requests", "chunks"), RAISED.values(), ids=RAISED)
async def test_what_ends_a_stream_is_raised(
    answers: list[Answer], how: dict[str, Any], error: errors.CosyserveError, requests: int, chunks: int
) -> None:
    """With the status, the text and the retry hint of the server, where it said them."""
    async with opened(*answers) as (client, door):
        speech = client.synthesize("x", **how)
        heard = [(await anext(speech)).audio for _ in range(chunks)]
        with pytest.raises(type(error), match=error.message) as caught:
            await anext(speech)
    assert caught.value.retry_after == error.retry_after
    assert (speech.summary, len(door.requests), b"".join(heard)) == (None, requests, WHOLE[: 50 * chunks])


@pytest.mark.parametrize("converts", [False, True])
async def test_a_lost_stream_is_taken_up_where_it_stopped(converts: bool) -> None:
    """A conversion with the same recordings."""
    async with opened(_broken_after(1), _broken_after(2), complete) as (client, door):
        if converts:
            speech = client.convert_voice(b"RIFF", prompt=Prompt(b"ID3"), prompt_mode="sft", speed=1.5, resumptions=1)
        else:
            speech = client.synthesize("x", resumptions=1)
        chunks = [chunk async for chunk in speech]
    assert b"".join(chunk.audio for chunk in chunks) == WHOLE
    assert [chunk.index for chunk in chunks] == [0, 1, 2, 3]
    assert [request.start_sample for request in door.requests] == [0, 25, 75]
    assert [request.seed for request in door.requests[1:]] == [77, 77]
    assert speech.resumed == 2
    assert speech.summary is not None
    for request in door.requests if converts else ():
        assert (request.audio, request.prompt.audio, request.speed) == (b"RIFF", b"ID3", 1.5)
        assert request.prompt_mode == synthesis_pb2.PROMPT_MODE_SFT


async def test_what_was_begun_is_taken_up_for_so_many_seconds() -> None:
    """However often that takes; a server that is full is waited for, too."""
    full = answering(lambda _: [], errors.Overloaded("no place", retry_after=0.05))
    begun = time.monotonic()
    async with opened(_broken_after(1), full, *[_broken_after(0, 0.05)] * 6, complete) as (client, door):
        assert await client.synthesize("x").read() == WHOLE
        assert len(door.requests) == 9
    async with opened(_broken_after(1), _broken_after(0, 0.1)) as (client, door):
        with pytest.raises(errors.Unavailable, match="going away"):
            await client.synthesize("x", resume_seconds=0.5).read()
        assert 3 <= len(door.requests) <= 6
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("error", [errors.Overloaded, errors.Unavailable])
async def test_a_listener_does_not_wait_as_long_as_a_hint_for_new_callers_says(
    monkeypatch: pytest.MonkeyPatch, error: type[errors.CosyserveError]
) -> None:
    monkeypatch.setattr(client_speech, "_LONGEST_BACK_OFF_SECONDS", 0.01)
    refused = answering(lambda _: [], error("no place", retry_after=30.0))
    async with opened(_broken_after(1), refused, refused, complete) as (client, door):
        assert await client.synthesize("x", resume_seconds=20).read() == WHOLE
    assert [request.start_sample for request in door.requests] == [0, 25, 25, 25]


async def test_leaving_the_block_hangs_up() -> None:
    ended = asyncio.Event()

    async def answer(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            yield speech_of(request)[0]
            await asyncio.sleep(60)
        finally:
            ended.set()

    async with opened(answer) as (client, _):
        async with client.synthesize("x") as speech:
            await anext(speech)
        await asyncio.wait_for(ended.wait(), 5)


async def test_nobody_there() -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(errors.Unavailable, match=r"server at 127\.0\.0\.1:1"):
            await client.voices()


@pytest.mark.parametrize(
    "values",
    [
        {"seed": -1},
        {"seed": 1 << 64},
        {"profile": "fast"},
        {"sample_rate": 1 << 40},
        {"growth": "slow"},
        {"prompt_mode": "loud"},
        {"prompt": b""},
        {"tempo": 2},
    ],
)
async def test_values_that_no_message_can_carry(values: dict[str, Any]) -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(errors.InvalidRequest, match="cannot be written as a message"):
            client.synthesize("x", **values)


async def test_modes_reach_every_call_that_has_them() -> None:
    how: dict[str, Any] = {
        "prompt_mode": "instruct",
        "instruction": "Slowly.",
        "prompt": Prompt(b"RIFF", "Hello.", "en"),
        "retry": True,
    }
    async with opened(complete) as (client, door):
        await client.synthesize("x", **how).read()
        await client.synthesize_unary("x", **how)
        async with client.streaming_synthesize(profile="upstream", mode="tokens", **how) as speech:
            await speech.finish()
            await speech.read()
    requests = [*door.requests, door.setups[0].request]
    assert len(requests) == 3
    for request in requests:
        assert (request.prompt_mode, request.instruction, request.retry) == (
            synthesis_pb2.PROMPT_MODE_INSTRUCT,
            "Slowly.",
            True,
        )
        assert request.prompt == voice_pb2.PromptRecording(audio=b"RIFF", transcript="Hello.", language_code="en")
    assert (requests[2].profile, door.setups[0].mode) == (
        profile_pb2.PROFILE_UPSTREAM,
        synthesis_pb2.StreamingSynthesizeSetup.MODE_TOKENS,
    )


async def test_unary_and_voices() -> None:
    async with opened(complete) as (client, door):
        audio, header, summary = await client.synthesize_unary("x", seed=5, encoding=Encoding.MULAW, sample_rate=8_000)
        voices = await client.voices()
    assert (audio, header) == (WHOLE, Header(5, "v", Encoding.MULAW, 8_000, "offline", ""))
    assert summary.real_time_factor == 0.5
    assert door.requests[0].audio_format.sample_rate_hertz == 8_000
    assert [(voice.id, voice.prompt_seconds, voice.is_default) for voice in voices] == [("narrator", 3.5, True)]


async def test_a_stream_is_taken_up_with_the_onset_that_its_samples_are_counted_from() -> None:
    trimmed = synthesis_pb2.ONSET_TRIMMED
    async with opened(_with_onset(trimmed, 1), _with_onset(trimmed)) as (client, door):
        speech = client.synthesize("x", resumptions=1)
        assert await speech.read() == WHOLE
        assert await client.synthesize("x", onset="natural").read() == WHOLE
    assert [request.onset for request in door.requests] == [
        synthesis_pb2.ONSET_UNSPECIFIED,
        trimmed,
        synthesis_pb2.ONSET_NATURAL,
    ]
    assert (speech.header.onset, speech.header.removed_start_milliseconds) == ("trimmed", 160.5)


async def test_the_caller_measures_the_first_byte_and_the_first_audible_sample() -> None:
    """100 samples at 100 Hz, of which the first 50 are silent."""
    sound = np.repeat(np.array([0, 1_000], "<i2"), 50).tobytes()
    async with opened(answering(lambda request: speech_of(request, audio=sound))) as (client, _):
        speech = client.synthesize("x", sample_rate=100)
        assert (speech.first_byte_seconds, speech.first_audible_seconds) == (None, None)
        await speech.read()
    assert speech.first_audible_seconds == pytest.approx(speech.first_byte_seconds + 0.5, abs=0.01)
