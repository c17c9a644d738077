"""What a stream reserves when it is admitted, and what is counted for it later."""

import asyncio

import numpy as np
import pytest

from cosyserve.errors import Overloaded
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.decoders.continuous_state import ContinuousState
from services.token2wav.decoders.fake import FakeDecoder
from services.token2wav.decoders.interface import StepInput
from services.token2wav.inputs.request import Profile, Sentence
from services.token2wav.stream import AcousticStream
from tests.unit.token2wav.speaking import batching, speak, tokens, torch_backend, voice

KIB = 1024


async def test_what_is_promised_counts_before_it_is_held() -> None:
    """A prompt of 20 and a reserve of 30 tokens claim 51 KiB each; two fit into 110 KiB though they
    hold 42 KiB.
    """
    async with (
        batching({Profile.CONTINUOUS: FakeDecoder()}, state_bytes=110 * KIB, reserve_tokens=30) as batcher,
        AcousticStream(batcher, Sentence(voice(20))),
    ):
        async with AcousticStream(batcher, Sentence(voice(20))):
            assert batcher.stats().state_bytes == 42 * KIB
            with pytest.raises(
                Overloaded,
                match=f"claim {102 * KIB} of {110 * KIB} bytes of decoder state and this one needs {51 * KIB}",
            ):
                AcousticStream(batcher, Sentence(voice(20)))
        AcousticStream(batcher, Sentence(voice(20))).close()


async def test_streams_within_their_reserve_stay_within_the_budget() -> None:
    limit = 3 * 101 * KIB
    async with batching({Profile.CONTINUOUS: FakeDecoder()}, state_bytes=limit, reserve_tokens=100) as batcher:
        heard = await asyncio.gather(*(speak(batcher, Sentence(voice(0), seed=seed), tokens(100)) for seed in range(3)))
        assert batcher.stats().peak_state_bytes <= limit
    assert [len(sound) for sound in heard] == [100 * 960 * 2] * 3


async def test_one_stream_alone_is_always_admitted() -> None:
    async with batching({Profile.CONTINUOUS: FakeDecoder()}, state_bytes=1, reserve_tokens=1000) as batcher:
        assert len(await speak(batcher, Sentence(voice(20)), tokens(60))) == 60 * 960 * 2


def test_a_stream_that_grows_by_tokens_says_how_much() -> None:
    """25 tokens more are at least what the decoder says a token takes, within what the vocoder
    keeps besides.
    """
    decoder = torch_backend().decoders[Profile.CONTINUOUS]
    state = decoder.start(Sentence(voice(0)))
    held = []
    for until in (25, 50, 75):
        # No more tokens than this block needs: none is begun before it is asked for.
        decoder.step([StepInput(state, np.asarray(tokens(until + 3)), until, final=False)])
        held.append(state.bytes)
    assert held[2] - held[1] == pytest.approx(25 * decoder.token_bytes, rel=0.02)


def begun(decoder: ContinuousDecoder, key: str, seed: int = 0) -> ContinuousState:
    """A stream that has done the first 25 tokens of its prompt."""
    state = decoder.start(Sentence(voice(30, key=key), seed=seed))
    if state.position == 0:
        decoder.step([StepInput(state, np.zeros(0, np.int64), 25, final=False)])
    assert state.position == 25
    return state


def test_state_that_the_prompt_cache_dropped_counts_with_the_streams_that_use_it() -> None:
    size = begun(torch_backend().decoders[Profile.CONTINUOUS], "a").flow.bytes  # type: ignore[arg-type]
    decoder = torch_backend(prompt_cache_bytes=size).decoders[Profile.CONTINUOUS]
    assert isinstance(decoder, ContinuousDecoder)
    first, second = begun(decoder, "a"), begun(decoder, "a", seed=1)
    shared = first.bytes
    assert first.bytes == second.bytes < size
    other = begun(decoder, "b")
    assert other.bytes == shared
    assert first.bytes == second.bytes == shared + size
