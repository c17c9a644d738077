"""In the continuous profile samples are bit-identical however mel was cut, and agree with the whole
sentence rendered at once.
"""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from services.token2wav.vocoder.vocoder import Vocoder, load_vocoder

TINY = Path(__file__).parents[2] / "golden" / "tiny"
with np.load(TINY / "flow_mel.npz") as arrays:
    MEL = torch.from_numpy(arrays["mel_offline"][0])
SEED, SENTENCE = 11, 2
VOCODER = load_vocoder(ModelDirectory(TINY), torch.device("cpu"))


def spoken(cuts: list[int], frames: int, chunk_phase: int = 0, vocoder: Vocoder = VOCODER) -> list[Tensor]:
    """What each step hands out when `frames` frames arrive in pieces of these lengths and a last
    one with the rest.
    """
    state = vocoder.start(SEED, SENTENCE, chunk_phase)
    borders = [0, *np.minimum(np.cumsum(cuts), frames).tolist(), frames]
    pieces = []
    for last, (begin, end) in enumerate(itertools.pairwise(borders), start=2):
        (samples,) = vocoder.step([state], [MEL[:, begin:end]], [last == len(borders)])
        assert samples is not None
        pieces.append(samples)
    assert state.bytes == 0
    return pieces


@pytest.mark.parametrize("frames", [1, 2, 5, 20, 29, 30, 31, 50, 101])
def test_one_frame_at_a_time_is_the_whole(frames: int) -> None:
    whole = torch.cat(spoken([], frames))
    assert whole.shape == (480 * frames,)
    assert torch.equal(torch.cat(spoken([1] * frames, frames)), whole)


@pytest.mark.parametrize("cuts", [[30, 50, 50, 50], [202], [0, 2, 0, 199], [10] * 20, [21, 1, 9, 1, 100]])
def test_cutting_changes_nothing(cuts: list[int]) -> None:
    assert torch.equal(torch.cat(spoken(cuts, 202)), torch.cat(spoken([], 202)))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    frames=st.integers(1, 120), cuts=st.lists(st.integers(0, 60), max_size=8), chunk_phase=st.sampled_from([0, 7, 30])
)
def test_any_cutting_changes_nothing(frames: int, cuts: list[int], chunk_phase: int) -> None:
    assert torch.equal(torch.cat(spoken(cuts, frames, chunk_phase)), torch.cat(spoken([], frames, chunk_phase)))


@pytest.mark.parametrize("frames", [1, 2, 5, 31, 101, 202])
def test_whole_at_once_up_to_rounding(frames: int) -> None:
    offline = VOCODER.offline(MEL[:, :frames], SEED, SENTENCE)
    for chunk_phase in (0, 13):
        torch.testing.assert_close(torch.cat(spoken([50] * 4, frames, chunk_phase)), offline, rtol=0, atol=2e-6)


def test_earlier_output_never_changes() -> None:
    """What has been returned does not depend on what follows."""
    state, other = VOCODER.start(SEED, SENTENCE), VOCODER.start(SEED, SENTENCE)
    (first,) = VOCODER.step([state], [MEL[:, :60]], [False])
    (again,) = VOCODER.step([other], [torch.cat([MEL[:, :60], -MEL[:, 60:120]], dim=1)], [True])
    assert first is not None
    assert again is not None
    assert 0 < first.shape[0] < again.shape[0]
    assert torch.equal(first, again[: first.shape[0]])


def test_what_is_settled_is_handed_out_at_once() -> None:
    """With a known phase, chunks of 50 frames leave nothing unrendered except the hold-back."""
    lengths = [piece.shape[0] // 480 for piece in spoken([32, 50, 50, 50], 202, chunk_phase=32)]
    assert lengths == [32 - VOCODER.hold_back_frames, 50, 50, 50, 20 + VOCODER.hold_back_frames]


def test_seed_and_sentence_name_the_noise() -> None:
    mel = MEL[:, :5]
    same, other, next_sentence = (VOCODER.offline(mel, seed, sentence) for seed, sentence in ((1, 0), (2, 0), (1, 1)))
    assert torch.equal(same, VOCODER.offline(mel, 1, 0))
    assert not torch.equal(same, other)
    assert not torch.equal(same, next_sentence)


@pytest.mark.parametrize("hold_back", [6, 9, 14])
def test_a_smaller_hold_back_is_still_independent_of_cuts(hold_back: int) -> None:
    vocoder = load_vocoder(ModelDirectory(TINY), torch.device("cpu"), hold_back_frames=hold_back)
    whole = torch.cat(spoken([], 101, vocoder=vocoder))
    assert torch.equal(torch.cat(spoken([1] * 101, 101, vocoder=vocoder)), whole)
    assert torch.equal(torch.cat(spoken([7, 50, 0, 3], 101, vocoder=vocoder)), whole)


@pytest.mark.parametrize("hold_back", [5, 21])
def test_a_hold_back_without_meaning_is_refused(hold_back: int) -> None:
    with pytest.raises(ValueError, match="allowed 6 to 20"):
        load_vocoder(ModelDirectory(TINY), torch.device("cpu"), hold_back_frames=hold_back)


def test_a_pruned_window_is_a_slice_of_the_whole() -> None:
    """Fast path against slow path: computing only the necessary columns changes at most
    rounding.
    """
    with torch.inference_mode():
        mel, source = MEL[None, :, :60], 0.1 * VOCODER.noise(0, 0, 0, 28800)[..., 0]
        whole = VOCODER.filter(mel, source, 0, 60)
        for first, last in ((0, 1), (0, 60), (25, 35), (59, 60), (3, 41)):
            part = VOCODER.filter(mel, source, first, last)
            torch.testing.assert_close(part, whole[:, 480 * first : 480 * last], rtol=0, atol=5e-6)
