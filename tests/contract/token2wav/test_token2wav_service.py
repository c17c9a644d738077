"""Token2WavService over real gRPC: what it answers, in which messages, how long it waits for
tokens, and with which status and words it refuses.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
import pytest

from cosyserve.rpc.calls import retry_delay
from cosyserve.telemetry import Timing
from cosyserve.v1 import identity_pb2, token2wav_pb2
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.loading import load_backend
from tests.contract.token2wav.token2wav_service import Loopback, begin, rest, said, serving, setup
from tests.stacks.calls import conversation, refusal, refused
from tests.unit.token2wav.speaking import tokens, until

NOT_FINITE = np.full((40, 80), np.nan, "<f4").tobytes()


@pytest.fixture
async def service(start_options: dict[str, Any]) -> AsyncIterator[Loopback]:
    async with serving(load_backend("fake", EngineSettings()), **{"max_streams": 2} | start_options) as running:
        yield running


async def decode(service: Loopback, ids: list[int], **fields: Any) -> list[token2wav_pb2.DecodedAudio]:
    request = token2wav_pb2.DecodeRequest(setup=setup(**fields), speech_tokens=ids)
    return [response.audio async for response in service.stub.Decode(request, timeout=30)]


async def stream(
    service: Loopback, messages: list[token2wav_pb2.DecodeStreamRequest]
) -> list[token2wav_pb2.DecodedAudio]:
    return [response.audio for response in await conversation(service.stub.DecodeStream(timeout=10), messages)]


async def test_the_first_message_says_who_and_the_last_says_how_long(service: Loopback) -> None:
    made = await decode(service, tokens(60), prompt=20)
    assert [audio.HasField("identity") for audio in made] == [True] + [False] * (len(made) - 1)
    assert made[0].identity == identity_pb2.EngineIdentity(
        model_hash="tones", backend="fake", precision="float32", device="cpu"
    )
    assert [audio.HasField("summary") for audio in made] == [False] * (len(made) - 1) + [True]
    summary = made[-1].summary
    assert summary.samples == 60 * 960
    assert 0 <= summary.first_flow_milliseconds <= summary.flow_milliseconds
    assert 0 < summary.first_vocoder_milliseconds <= summary.vocoder_milliseconds
    places = np.cumsum([0, *(len(audio.audio) // 2 for audio in made)])
    assert [audio.start_sample for audio in made] == places[:-1].tolist()
    assert places[-1] == 60 * 960


async def test_both_methods_say_the_same(service: Loopback) -> None:
    whole = b"".join(audio.audio for audio in await decode(service, tokens(60), seed=5))
    cut = await stream(service, [begin(seed=5), said(tokens(60)[:7]), said([]), said(tokens(60)[7:])])
    assert b"".join(audio.audio for audio in cut) == whole


async def test_an_accepted_setup_is_answered_before_any_token(service: Loopback) -> None:
    call = service.stub.DecodeStream(timeout=10)
    await call.write(begin())
    await call.initial_metadata()
    assert service.batcher.stats().streams == 1
    call.cancel()


async def test_every_chunk_becomes_a_span(service: Loopback, spans: list[Timing]) -> None:
    await decode(service, tokens(60), prompt=20)
    # The first piece that sounds may have waited for the next, each for its turn.
    computed = [span for span in spans if span.name not in ("token2wav.hold", "token2wav.queue")]
    assert [span.name for span in computed] == ["token2wav.flow", "token2wav.vocoder"] * 4
    assert [span.attributes["hop"] for span in computed[::2]] == [0, 1, 2, 3]


async def test_resumed_at_the_very_end_there_is_only_the_summary(service: Loopback) -> None:
    made = await decode(service, tokens(10), start_sample=9600)
    assert [(audio.audio, audio.start_sample, audio.summary.samples) for audio in made] == [(b"", 9600, 9600)]
    assert made[0].HasField("identity")


@pytest.mark.parametrize(
    ("ids", "fields", "text"),
    [
        ([], {}, "the sentence has no speech tokens; 1 to 4096 are needed"),
        ([0] * 4097, {}, "the sentence has more than 4096 speech tokens"),
        ([0, 6561], {}, "speech token[1] is 6561; speech token ids are 0 to 6560"),
        ([-1], {}, "speech token[0] is -1; speech token ids are 0 to 6560"),
        ([0], {"prompt_speech_tokens": [0] * 1501}, "prompt_speech_tokens has 1501 tokens; at most 1500 are allowed"),
        (
            [0],
            {"prompt": 20, "prompt_speech_tokens": [9000] * 20},
            "prompt_speech_tokens[0] is 9000; speech token ids are 0 to 6560",
        ),
        ([0], {"prompt_mel": b"1234"}, "prompt_mel has 4 bytes; 0 prompt tokens need float32 [0, 80] = 0 bytes"),
        (
            [0],
            {"prompt": 20, "prompt_mel": b""},
            "prompt_mel has 0 bytes; 20 prompt tokens need float32 [40, 80] = 12800 bytes",
        ),
        ([0], {"prompt": 20, "prompt_mel": NOT_FINITE}, "prompt_mel holds a value that is not a finite number"),
        ([0], {"speaker_embedding": b""}, "speaker_embedding has 0 bytes; float32 [192] = 768 bytes are needed"),
        ([0], {"speed": 0.49}, "speed is 0.49; 0.5 to 2 is allowed"),
        ([0], {"speed": 2.01}, "speed is 2.01; 0.5 to 2 is allowed"),
        ([0], {"speed": float("nan")}, "speed is nan; 0.5 to 2 is allowed"),
        ([0], {"speed": 1.5, "profile": 2}, "speed is 1.5; PROFILE_UPSTREAM supports speed 1 only"),
        ([0], {"caller_streams": -1}, "caller_streams is -1; it must not be negative"),
        ([0], {"start_sample": -1}, "start_sample is -1; it must not be negative"),
        (
            [0],
            {"profile": 9},
            "profile 9 is not known; known are PROFILE_CONTINUOUS, PROFILE_UPSTREAM, PROFILE_OFFLINE",
        ),
        ([0], {"hops": {"first_hop_tokens": 101}}, "hops.first_hop_tokens is 101; 1 to 100 is allowed"),
        ([0], {"hops": {"first_hop_tokens": -1}}, "hops.first_hop_tokens is -1; 1 to 100 is allowed"),
        ([0], {"hops": {"max_hop_tokens": 24}}, "hops.max_hop_tokens is 24; 25 to 400 is allowed"),
        ([0], {"hops": {"growth": 7}}, "hops.growth 7 is not known; known are GROWTH_FIXED, GROWTH_EXPONENTIAL"),
    ],
)
async def test_bad_values_are_refused_by_name(
    service: Loopback, ids: list[int], fields: dict[str, Any], text: str
) -> None:
    assert await refused(decode(service, ids, **fields)) == (grpc.StatusCode.INVALID_ARGUMENT, text)
    assert service.batcher.stats().streams == 0


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "no message came, expected the setup"),
        ([said([1])], "the first message carries tokens, expected the setup"),
        ([token2wav_pb2.DecodeStreamRequest()], "the first message carries nothing, expected the setup"),
        (
            [begin()] * 2,
            "only the first message may be the setup; all later ones must be tokens",
        ),
        ([begin()], "the sentence has no speech tokens; 1 to 4096 are needed"),
    ],
)
async def test_messages_out_of_order_are_refused(
    service: Loopback, messages: list[token2wav_pb2.DecodeStreamRequest], text: str
) -> None:
    assert await refused(stream(service, messages)) == (grpc.StatusCode.INVALID_ARGUMENT, text)


async def test_a_request_without_setup_is_refused(service: Loopback) -> None:
    assert await refused(anext(aiter(service.stub.Decode(token2wav_pb2.DecodeRequest(speech_tokens=[1]))))) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "setup is missing",
    )


async def test_a_resume_point_after_the_end(service: Loopback) -> None:
    assert await refused(decode(service, tokens(10), start_sample=9601)) == (
        grpc.StatusCode.OUT_OF_RANGE,
        "start_sample is 9601; the sentence has 9600 samples",
    )


async def test_another_engine_than_the_one_that_began(service: Loopback) -> None:
    identity = identity_pb2.EngineIdentity(model_hash="tones", backend="fake", precision="float32", device="cpu")
    assert await decode(service, tokens(5), expected_identity=identity)
    identity.backend = "torch"
    await refusal(
        decode(service, tokens(5), expected_identity=identity),
        grpc.StatusCode.FAILED_PRECONDITION,
        "backend='torch'",
        "start it again",
    )


async def test_full_is_said_at_once_with_when_to_come_back(service: Loopback) -> None:
    held = [service.stub.DecodeStream() for _ in range(2)]
    for call in held:
        await call.write(begin())
        await call.write(said(tokens(60)))
        await call.read()
    error = await refusal(decode(service, tokens(5)), grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert error.details() == "all 2 streams of the decoder are taken"
    assert 0.2 <= retry_delay(error) <= 30
    for call in held:
        await call.done_writing()
        assert [audio.summary.samples for audio in await rest(call)][-1] == 60 * 960
    assert await decode(service, tokens(5))


async def test_a_hop_that_the_caller_already_has_is_a_message_without_audio(service: Loopback) -> None:
    made = await decode(service, tokens(100), start_sample=45 * 960)
    assert [bool(audio.audio) for audio in made] == [False, False, True, True]
    assert made[0].HasField("identity")
    assert (made[2].start_sample, sum(len(audio.audio) for audio in made)) == (45 * 960, 55 * 1920)


async def test_a_sentence_in_one_piece_is_cut_into_messages_of_a_megabyte(service: Loopback) -> None:
    made = await decode(service, tokens(1200), profile=3)
    assert [len(audio.audio) for audio in made] == [1_000_000, 1_000_000, 1200 * 1920 - 2_000_000]
    assert [audio.start_sample for audio in made] == [0, 500_000, 1_000_000]
    assert [audio.HasField("identity") for audio in made] == [True, False, False]
    assert [audio.HasField("summary") for audio in made] == [False, False, True]


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.start(idle_seconds=0.3)
async def test_a_stream_whose_tokens_stay_away_is_ended_and_its_place_is_free(service: Loopback, noise: bool) -> None:
    """Messages without tokens do not keep the stream open."""
    call = service.stub.DecodeStream(timeout=10)
    await call.write(begin())
    await call.initial_metadata()
    await call.write(said(tokens(10)))
    began = time.monotonic()

    async def mutter() -> None:
        while noise and not call.done():
            await call.write(said([]))
            await asyncio.sleep(0.05)

    muttering = asyncio.create_task(mutter())
    assert await refused(call.read()) == (grpc.StatusCode.DEADLINE_EXCEEDED, "no tokens came for 0.3 s")
    assert 0.25 < time.monotonic() - began < 5
    await asyncio.gather(muttering, return_exceptions=True)
    await until(lambda: not service.batcher.stats().streams)


@pytest.mark.start(idle_seconds=0.5)
async def test_tokens_that_come_in_time_keep_a_stream(service: Loopback) -> None:
    call = service.stub.DecodeStream(timeout=10)
    await call.write(begin())
    for at in range(6):
        await call.write(said(tokens(10, offset=at)))
        await asyncio.sleep(0.15)
    await call.done_writing()
    assert sum(len(audio.audio) for audio in await rest(call)) == 60 * 1920
