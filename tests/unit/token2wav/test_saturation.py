"""Audio at the limit of the sample range for long is a fault, peaks are not; chunk sizes do not
matter, and a mel that is not finite is detected.
"""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from services.token2wav.guards.loudness import LIMIT, MAX_SHARE, WINDOW_SAMPLES, SaturationGuard

from cosyserve.errors import Absurd
from services.token2wav.flow.flow import LARGEST_MEL, all_plausible, plausible

RATE = 24_000


def speech(seconds: float) -> NDArray[np.float32]:
    """Loud, with peaks at the limit now and then."""
    wave = 0.3 * np.random.default_rng(1).standard_normal(int(RATE * seconds))
    return np.clip(wave, -0.99, 0.99).astype(np.float32)


def square(seconds: float) -> NDArray[np.float32]:
    places = np.arange(int(RATE * seconds))
    return np.where(places // 60 % 2, np.float32(0.99), np.float32(-0.99))


def verdict(sound: NDArray[np.float32], cut: int) -> str:
    of = SaturationGuard()
    try:
        for at in range(0, len(sound), cut):
            of.hear(sound[at : at + cut])
    except Absurd as error:
        return error.message
    return ""


@pytest.mark.parametrize("cut", [1, 77, 4800, 24_000, 10**9])
def test_sound_at_the_limit_is_found_however_it_is_cut(cut: int) -> None:
    loud = speech(0.6)
    assert 0 < (np.abs(loud) >= LIMIT).mean() < MAX_SHARE
    assert verdict(loud, cut) == ""
    message = verdict(np.concatenate([loud, square(0.4), loud]), cut)
    assert message == "100% of the 0.2 s from 0.60 s on lie at the limit of what is sound"


def test_a_quarter_of_a_window_may() -> None:
    window = np.zeros(WINDOW_SAMPLES, np.float32)
    window[: int(MAX_SHARE * WINDOW_SAMPLES)] = 1.0
    assert verdict(window, 480) == ""
    window[int(MAX_SHARE * WINDOW_SAMPLES)] = -1.0
    assert verdict(window, 480).startswith("25% of the 0.2 s from 0.00 s on")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e4, -1e30, LARGEST_MEL * 1.01])
def test_a_mel_that_no_magnitude_has_is_none(value: float) -> None:
    mels = torch.linspace(-12.0, 3.0, 3 * 80 * 50).view(3, 80, 50)
    assert plausible(mels).tolist() == [True, True, True]
    assert all_plausible(mels)
    mels[1, 3, 7] = value
    assert plausible(mels).tolist() == [True, False, True]
    assert not all_plausible(mels)
