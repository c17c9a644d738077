"""What DecodeStream sends while no audio is ready, how much it puts into one message, and how long
it waits for tokens.
"""

import asyncio
import time

import grpc
import pytest

from cosyserve.v1 import token2wav_pb2
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.loading import load_backend
from tests.contract.token2wav.token2wav_service import said, serving, setup
from tests.unit.token2wav.speaking import tokens

FAKE = load_backend("fake", EngineSettings())


async def test_a_hop_that_the_caller_already_has_is_a_message_without_audio() -> None:
    async with serving(FAKE) as service:
        request = token2wav_pb2.DecodeRequest(setup=setup(start_sample=45 * 960), speech_tokens=tokens(100))
        made = [response.audio async for response in service.stub.Decode(request, timeout=10)]
    assert len(made) == 4
    assert [bool(audio.audio) for audio in made] == [False, False, True, True]
    assert made[0].HasField("identity")
    assert made[2].start_sample == 45 * 960
    assert sum(len(audio.audio) for audio in made) == 55 * 1920


async def test_a_sentence_in_one_piece_is_cut_into_messages_of_a_megabyte() -> None:
    async with serving(FAKE) as service:
        request = token2wav_pb2.DecodeRequest(setup=setup(profile=3), speech_tokens=tokens(1200))
        made = [response.audio async for response in service.stub.Decode(request, timeout=30)]
    assert [len(audio.audio) for audio in made] == [1_000_000, 1_000_000, 1200 * 1920 - 2_000_000]
    assert [audio.start_sample for audio in made] == [0, 500_000, 1_000_000]
    assert [audio.HasField("identity") for audio in made] == [True, False, False]
    assert [audio.HasField("summary") for audio in made] == [False, False, True]


@pytest.mark.parametrize("noise", [False, True])
async def test_a_stream_whose_tokens_stay_away_is_ended_and_its_place_is_free(noise: bool) -> None:
    """Messages without tokens do not keep the stream open."""
    async with serving(FAKE, idle_seconds=0.3) as service:
        call = service.stub.DecodeStream(timeout=10)
        await call.write(token2wav_pb2.DecodeStreamRequest(setup=setup()))
        await call.initial_metadata()
        await call.write(said(tokens(10)))
        began = time.monotonic()

        async def mutter() -> None:
            while noise and not call.done():
                await call.write(said([]))
                await asyncio.sleep(0.05)

        muttering = asyncio.create_task(mutter())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert (caught.value.code(), caught.value.details()) == (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            "no tokens came for 0.3 s",
        )
        assert 0.25 < time.monotonic() - began < 5
        await asyncio.gather(muttering, return_exceptions=True)
        async with asyncio.timeout(5):
            while service.batcher.stats().streams:
                await asyncio.sleep(0.001)


async def test_tokens_that_come_in_time_keep_a_stream() -> None:
    async with serving(FAKE, idle_seconds=0.5) as service:
        call = service.stub.DecodeStream(timeout=10)
        await call.write(token2wav_pb2.DecodeStreamRequest(setup=setup()))
        for at in range(6):
            await call.write(said(tokens(10, offset=at)))
            await asyncio.sleep(0.15)
        await call.done_writing()
        sound = b"".join([response.audio.audio async for response in call])
    assert len(sound) == 60 * 1920
