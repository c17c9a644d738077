"""Seams, endings, durations and faults, on sounds where the answer is known."""

import math

import numpy as np
import pytest

from tests.unit.quality.tones import RATE, fading, recording, tone
from tools.quality.sound.faults import duration_ratios, ending, fault_of
from tools.quality.sound.seams import largest_difference, seams, spectral_distance
from tools.quality.sound.speakers import similarity
from tools.quality.words.alignment import Alignment, WordErrors

BORDERS = tuple(second * RATE + 37 for second in range(1, 20))
RIGHT = Alignment(WordErrors(5), 0, 0)


def test_cuts_that_leave_no_trace_look_like_any_other_place() -> None:
    result = seams([recording(tone(20.0, 199.7), *BORDERS)])
    assert result.borders == len(BORDERS)
    assert 0.7 < result.step_mean < 1.4
    assert 0.5 < result.jump_mean < 1.8


def test_a_click_at_one_border_in_a_hundred_is_seen_in_the_upper_end() -> None:
    samples = tone(121.0, 199.7)
    borders = tuple(second * RATE + 37 for second in range(1, 101))
    clean = seams([recording(samples, *borders)])
    samples[list(borders[:2])] += 0.3
    assert seams([recording(samples, *borders)]).step_99 > 5 * clean.step_99


def test_pieces_of_other_loudness_are_seen_as_jumps() -> None:
    samples = tone(20.0, 199.7)
    for border in BORDERS[::2]:
        samples[border : border + RATE] *= 0.3
    assert seams([recording(samples, *BORDERS)]).jump_mean > 5


def test_speech_that_comes_to_rest_differs_from_speech_that_is_cut() -> None:
    sound = fading(tone(1.0))
    whole, cut = ending(recording(sound)), ending(recording(sound[: RATE // 2]))
    assert (whole.cut, cut.cut) == (False, True)
    assert whole.tail_decibels < -6
    assert cut.last_decibels > -10
    assert not ending(recording(np.zeros(RATE, np.float32))).cut


def test_durations_are_compared_with_the_reference_where_it_has_the_sentence() -> None:
    spoken = [recording(tone(2.0), number=1, text="abcd"), recording(tone(3.0), number=2, text="abcdef")]
    assert duration_ratios(spoken, [recording(tone(1.0), number=1)]) == pytest.approx([2.0, 1.0])


def test_without_a_reference_the_list_says_how_long_a_sentence_takes() -> None:
    usual = [recording(tone(0.5 + 0.1 * letters), number=letters, text="x" * letters) for letters in range(4, 16)]
    ratios = duration_ratios([*usual, recording(tone(4.0), number=99, text="x" * 10)], None)
    assert ratios[:-1] == pytest.approx([1.0] * len(usual), abs=0.02)
    assert ratios[-1] == pytest.approx(4.0 / 1.5, rel=0.02)


@pytest.mark.parametrize(
    ("samples", "alignment", "ratio", "fault"),
    [
        (tone(1.0), RIGHT, 1.0, None),
        (tone(1.0), RIGHT, 1.59, None),
        (tone(1.0), RIGHT, 0.61, None),
        (tone(1.0), Alignment(WordErrors(5, 0, 1, 0), 1, 0), 1.0, None),
        (tone(1.0), RIGHT, 1.61, "runs on"),
        (tone(1.0), Alignment(WordErrors(5, 0, 2, 0), 2, 0), 1.0, "runs on"),
        (tone(1.0), RIGHT, 0.59, "stops early"),
        (tone(1.0), Alignment(WordErrors(5, 0, 0, 2), 0, 2), 1.0, "stops early"),
        (tone(1.0) * np.float32(0.01), RIGHT, 2.0, "silent"),
        (np.zeros(0, np.float32), RIGHT, 0.0, "silent"),
    ],
)
def test_a_sentence_is_silent_runs_on_or_stops_early(
    samples: np.ndarray, alignment: Alignment, ratio: float, fault: str | None
) -> None:
    assert fault_of(samples, alignment, ratio) == fault


def test_streamed_and_whole_are_compared_sample_by_sample_and_by_spectrum() -> None:
    one = tone(1.0)
    other = one.copy()
    other[5000] += np.float32(0.25)
    assert largest_difference(one, one) == 0
    assert largest_difference(one, other) == pytest.approx(0.25)
    assert largest_difference(one, one[:-1]) == math.inf
    assert spectral_distance(one, one) == 0
    clicked, halved = spectral_distance(one, other), spectral_distance(one, one * np.float32(0.5))
    assert (halved or 0) > (clicked or 0) > 0
    assert spectral_distance(one, tone(2.0)) is None


def test_a_voice_is_closer_to_itself_than_to_another() -> None:
    around = np.eye(8)[:2, None] + 0.1 * np.random.default_rng(0).standard_normal((2, 6, 8))
    one, two = (around / np.linalg.norm(around, axis=2, keepdims=True)).astype(np.float32)
    result = similarity(one, [two], one)
    assert (result.to_self or 0) > 0.85 > 0.4 > (result.to_others or 1)
    assert similarity(one, [], None).to_reference is None
