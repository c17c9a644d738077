"""Inaudible audio is a fault, pauses are not; audio at the limit of the sample range for long is a
fault, peaks are not. Chunk sizes do not matter. Silence can be held back until something is
audible, and a mel that is not finite is detected.
"""

import contextlib
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cosyserve.errors import Absurd, NonFinite, Silence
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.flow.solver import LARGEST_MEL, plausible
from services.token2wav.guards.loudness import (
    FRAME_SAMPLES,
    LIMIT,
    MAX_SHARE,
    QUIET,
    WINDOW_SAMPLES,
    SaturationGuard,
    SilenceGuard,
)
from services.token2wav.inputs.request import Profile, Sentence
from services.token2wav.loading import load_backend
from services.token2wav.stream import AcousticStream
from tests.unit.token2wav.speaking import batching, pieces, speak, tokens, voice

RATE = 24_000


def noise(seconds: float, loudness: float = 0.1) -> NDArray[np.float32]:
    return (loudness * np.random.default_rng(1).standard_normal(int(RATE * seconds))).astype(np.float32)


def hush(seconds: float) -> NDArray[np.float32]:
    return noise(seconds, QUIET / 2)


def verdict(hear: Callable[[NDArray[np.float32], bool], None], sound: NDArray[np.float32], cut: int) -> str:
    """What the guard finds wrong; empty if nothing."""
    try:
        for at in range(0, len(sound), cut):
            hear(sound[at : at + cut], at + cut >= len(sound))
    except (Silence, Absurd) as error:
        return error.message
    return ""


def silence(sound: NDArray[np.float32], cut: int, speed: float = 1.0) -> str:
    guard = SilenceGuard(speed)
    return verdict(lambda samples, last: guard.hear(samples, last=last), sound, cut)


def saturation(sound: NDArray[np.float32], cut: int) -> str:
    guard = SaturationGuard()
    return verdict(lambda samples, _: guard.hear(samples), sound, cut)


@pytest.mark.parametrize("cut", [77, 24_000, 10**9])
def test_silence_is_found_however_it_is_cut(cut: int) -> None:
    assert "nothing in its 2.00 s can be heard" in silence(hush(2.0), cut)
    assert "for 3.02 s from 1.00 s on" in silence(np.concatenate([noise(1.0), hush(4.0), noise(1.0)]), cut)
    assert silence(np.concatenate([hush(0.5), noise(0.5), hush(2.9), noise(0.5), hush(2.9)]), cut) == ""


def test_slow_speech_may_pause_longer() -> None:
    sound = np.concatenate([noise(1.0), hush(4.0), noise(1.0)])
    assert silence(sound, 24_000, speed=0.5) == ""
    assert silence(sound, 24_000, speed=2.0)


def test_one_frame_is_enough_to_be_heard() -> None:
    assert silence(np.concatenate([hush(1.0), noise(FRAME_SAMPLES / RATE), hush(1.0)]), 1000) == ""


async def test_silence_is_an_error_and_may_be_held_back() -> None:
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

    async with batching(load_backend("fake", EngineSettings(fake_fault="silence")).decoders) as batcher:
        assert await left(Sentence(voice(0))) == whole
        assert 0 < await left(Sentence(voice(0), guards=True)) < whole
        assert await left(Sentence(voice(0), guards=True, holds_silence=True)) == 0


@pytest.mark.parametrize("profile", list(Profile))
async def test_what_is_no_number_never_becomes_an_integer(profile: Profile) -> None:
    async with batching(load_backend("fake", EngineSettings(fake_fault="non_finite")).decoders) as batcher:
        with pytest.raises(NonFinite, match="not finite behind sample"):
            await pieces(batcher, Sentence(voice(0), profile=profile), tokens(60), 5)


@pytest.mark.parametrize("start", [0, 5_000, 30_000])
async def test_guards_change_no_sample(start: int) -> None:
    async with batching(load_backend("fake", EngineSettings()).decoders) as batcher:
        plain, guarded = [
            await speak(batcher, Sentence(voice(20), start_sample=start, guards=guards), tokens(60))
            for guards in (False, True)
        ]
    assert plain == guarded


def speech(seconds: float) -> NDArray[np.float32]:
    """Loud, with peaks at the limit now and then."""
    wave = 0.3 * np.random.default_rng(1).standard_normal(int(RATE * seconds))
    return np.clip(wave, -0.99, 0.99).astype(np.float32)


def square(seconds: float) -> NDArray[np.float32]:
    places = np.arange(int(RATE * seconds))
    return np.where(places // 60 % 2, np.float32(0.99), np.float32(-0.99))


@pytest.mark.parametrize("cut", [1, 77, 4800, 24_000, 10**9])
def test_sound_at_the_limit_is_found_however_it_is_cut(cut: int) -> None:
    loud = speech(0.6)
    assert 0 < (np.abs(loud) >= LIMIT).mean() < MAX_SHARE
    assert saturation(loud, cut) == ""
    message = saturation(np.concatenate([loud, square(0.4), loud]), cut)
    assert message == "100% of the 0.2 s from 0.60 s on lie at the limit of what is sound"


def test_a_quarter_of_a_window_may() -> None:
    window = np.zeros(WINDOW_SAMPLES, np.float32)
    window[: int(MAX_SHARE * WINDOW_SAMPLES)] = 1.0
    assert saturation(window, 480) == ""
    window[int(MAX_SHARE * WINDOW_SAMPLES)] = -1.0
    assert saturation(window, 480).startswith("25% of the 0.2 s from 0.00 s on")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e4, -1e30, LARGEST_MEL * 1.01])
def test_a_mel_that_no_magnitude_has_is_none(value: float) -> None:
    mels = torch.linspace(-12.0, 3.0, 3 * 80 * 50).view(3, 80, 50)
    assert plausible(mels).tolist() == [True, True, True]
    mels[1, 3, 7] = value
    assert plausible(mels).tolist() == [True, False, True]
