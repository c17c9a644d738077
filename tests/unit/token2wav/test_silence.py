"""Inaudible audio is a fault, pauses are not; chunk sizes do not matter, and silence can be held
back until something is audible.
"""

import contextlib

import numpy as np
import pytest
from numpy.typing import NDArray
from services.token2wav.guards.loudness import FRAME_SAMPLES, QUIET, SilenceGuard

from cosyserve.errors import NonFinite, Silence
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.inputs.request import Profile, Sentence
from services.token2wav.loading import load_backend
from services.token2wav.stream import AcousticStream
from tests.unit.token2wav.speaking import batching, pieces, tokens, voice

RATE = 24_000


def noise(seconds: float, loudness: float = 0.1) -> NDArray[np.float32]:
    return (loudness * np.random.default_rng(1).standard_normal(int(RATE * seconds))).astype(np.float32)


def hush(seconds: float) -> NDArray[np.float32]:
    return noise(seconds, QUIET / 2)


def verdict(sound: NDArray[np.float32], cut: int, speed: float = 1.0) -> str:
    of = SilenceGuard(speed)
    starts = range(0, len(sound), cut)
    try:
        for at in starts:
            of.hear(sound[at : at + cut], last=at + cut >= len(sound))
    except Silence as error:
        return error.message
    return ""


@pytest.mark.parametrize("cut", [77, 24_000, 10**9])
def test_silence_is_found_however_it_is_cut(cut: int) -> None:
    assert "nothing in its 2.00 s can be heard" in verdict(hush(2.0), cut)
    assert "for 3.02 s from 1.00 s on" in verdict(np.concatenate([noise(1.0), hush(4.0), noise(1.0)]), cut)
    assert verdict(np.concatenate([hush(0.5), noise(0.5), hush(2.9), noise(0.5), hush(2.9)]), cut) == ""


def test_slow_speech_may_pause_longer() -> None:
    sound = np.concatenate([noise(1.0), hush(4.0), noise(1.0)])
    assert verdict(sound, 24_000, speed=0.5) == ""
    assert verdict(sound, 24_000, speed=2.0)


def test_one_frame_is_enough_to_be_heard() -> None:
    assert verdict(np.concatenate([hush(1.0), noise(FRAME_SAMPLES / RATE), hush(1.0)]), 1000) == ""


async def test_silence_is_told_and_may_be_held() -> None:
    backend = load_backend("fake", EngineSettings(fake_fault="silence"))
    whole = 2 * 960 * 60

    async def left(sentence: Sentence) -> int:
        """Bytes that were sent before the sentence ended or failed."""
        sent = 0
        async with AcousticStream(batcher, sentence) as stream:
            await stream.feed(tokens(60))
            await stream.finish()
            with pytest.raises(Silence) if sentence.guards else contextlib.nullcontext():
                async for piece in stream:
                    sent += len(piece.audio)
        return sent

    async with batching(backend.decoders) as batcher:
        assert await left(Sentence(voice(0))) == whole
        assert 0 < await left(Sentence(voice(0), guards=True)) < whole
        assert await left(Sentence(voice(0), guards=True, holds_silence=True)) == 0


@pytest.mark.parametrize("profile", list(Profile))
async def test_what_is_no_number_never_becomes_an_integer(profile: Profile) -> None:
    backend = load_backend("fake", EngineSettings(fake_fault="non_finite"))
    async with batching(backend.decoders) as batcher:
        with pytest.raises(NonFinite, match="not finite behind sample"):
            await pieces(batcher, Sentence(voice(0), profile=profile), tokens(60), 5)


@pytest.mark.parametrize("start", [0, 5_000, 30_000])
async def test_guards_change_no_sample(start: int) -> None:
    backend = load_backend("fake", EngineSettings())
    async with batching(backend.decoders) as batcher:
        plain, guarded = [
            list(await pieces(batcher, Sentence(voice(20), start_sample=start, guards=guards), tokens(60)))
            for guards in (False, True)
        ]
    assert b"".join(piece.audio for piece in plain) == b"".join(piece.audio for piece in guarded)
