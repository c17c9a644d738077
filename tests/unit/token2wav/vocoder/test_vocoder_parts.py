"""Speaking rate: any cutting gives the frames of the whole, at the positions that the speed asks
for. And how far samples depend on mel: by the configuration's arithmetic, and by perturbing one
frame.
"""

from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cosyserve.errors import InternalFault
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.model_directory import ModelDirectory
from services.token2wav.vocoder.hift_vocoder import HiftVocoder
from services.token2wav.vocoder.receptive_field import context
from services.token2wav.vocoder.source import F0Predictor
from services.token2wav.vocoder.time_stretch import MelStretch
from services.token2wav.vocoder.weights import VocoderConfig, load_weights, read_config
from tests.unit.token2wav.speaking import TINY

MEL = torch.randn(80, 200, generator=torch.Generator().manual_seed(0))


def stretched(speed: float, frames: int, cuts: list[int]) -> Tensor:
    state = MelStretch(speed)
    borders = [0, *(min(frames, at) for at in accumulate(cuts)), frames]
    pieces = [MEL[:, begin:end] for begin, end in pairwise(borders)]
    return torch.cat([state.step(piece, final=at == len(cuts)) for at, piece in enumerate(pieces)], dim=1)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(speed=st.floats(0.5, 2.0), frames=st.integers(1, 120), cuts=st.lists(st.integers(0, 40), max_size=8))
def test_any_cutting_is_the_whole(speed: float, frames: int, cuts: list[int]) -> None:
    whole = stretched(speed, frames, [])
    assert whole.shape == (80, max(1, int(frames / speed)))
    assert torch.equal(stretched(speed, frames, cuts), whole)


def test_positions() -> None:
    """A ramp comes back as the positions themselves."""
    got = MelStretch(1.25).step(torch.arange(100.0).expand(80, -1), final=True)[0]
    torch.testing.assert_close(got, (torch.arange(80) + 0.5) * 1.25 - 0.5, rtol=0, atol=1e-5)


def test_where_the_lengths_divide_streaming_is_the_reference_rule() -> None:
    torch.testing.assert_close(stretched(1.25, 100, [7, 13]), MelStretch.offline(MEL[:, :100], 1.25), rtol=0, atol=2e-6)


def test_frames_come_out_as_early_as_they_can_and_none_behind_the_last() -> None:
    state = MelStretch(0.5)
    assert state.step(MEL[:, :10], final=False).shape[1] == 19
    assert state.step(MEL[:, 10:10], final=True).shape[1] == 1
    with pytest.raises(InternalFault, match="after the final one"):
        state.step(MEL, final=True)


def test_speed_one_is_untouched() -> None:
    assert MelStretch(1.0).step(MEL, final=False) is MEL
    assert MelStretch.offline(MEL, 1.0) is MEL


def test_nothing_in_nothing_out() -> None:
    assert (stretched(1.7, 0, []).shape, MelStretch.offline(MEL[:, :0], 1.7).shape) == ((80, 0), (80, 0))


def test_memory_stays_small() -> None:
    state = MelStretch(0.7)
    for begin in range(0, 200, 10):
        state.step(MEL[:, begin : begin + 10], final=False)
        assert state.bytes <= 80 * 4 * 4


BUNDLE = ModelDirectory(TINY)
FRAMES, TOUCHED = 44, 22
CPU = torch.device("cpu")
HUGE = 1e12  # at the rim of the field an ordinary change drowns in the rounding of float64


@pytest.fixture(scope="module")
def config() -> VocoderConfig:
    return read_config(BUNDLE)


@pytest.fixture(scope="module")
def vocoder(config: VocoderConfig) -> HiftVocoder:
    return HiftVocoder(config, {name: tensor.double() for name, tensor in load_weights(BUNDLE, config).items()}, CPU)


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def changed_frames(before: Tensor, after: Tensor, per_frame: int) -> tuple[int, int]:
    """First and last frame with a value that differs."""
    frames = ((before != after).flatten().nonzero().flatten() // per_frame).tolist()
    return frames[0], frames[-1]


@torch.inference_mode()
def test_measured_through_the_convolutions(vocoder: HiftVocoder, config: VocoderConfig) -> None:
    mel, source = noise(1, 80, FRAMES), torch.zeros(1, 480 * FRAMES, dtype=torch.float64)
    before = vocoder.filter(mel, source, 0, FRAMES)
    mel[:, :, TOUCHED] += HUGE
    first, last = changed_frames(before, vocoder.filter(mel, source, 0, FRAMES), 480)
    field = context(config)
    assert (TOUCHED - first, last - TOUCHED) == (field.mel_after, field.mel_before)


@torch.inference_mode()
@pytest.mark.parametrize("place", [0, 90, 239, 240, 400, 479])
def test_measured_through_the_source(vocoder: HiftVocoder, config: VocoderConfig, place: int) -> None:
    mel, source = noise(1, 80, FRAMES), noise(1, 480 * FRAMES)
    sample = 480 * TOUCHED + place
    before = vocoder.filter(mel, source, 0, FRAMES)
    source[:, sample] += HUGE
    measured = changed_frames(before, vocoder.filter(mel, source, 0, FRAMES), 480)
    field = context(config)
    seeing = [n for n in range(FRAMES) if 480 * n - field.source_before <= sample < 480 * (n + 1) + field.source_after]
    assert measured == (seeing[0], seeing[-1])


@torch.inference_mode()
def test_measured_through_f0(vocoder: HiftVocoder) -> None:
    mel = noise(1, 80, FRAMES)
    f0 = vocoder.f0(mel)
    mel[:, :, TOUCHED] += 100.0
    other = vocoder.f0(mel)
    assert changed_frames(f0, other, 1) == (TOUCHED - F0Predictor.reach, TOUCHED + F0Predictor.reach)
    waves, bent = (vocoder.source.waves(each, None, ended=True)[0] for each in (f0, other))
    first = int((waves != bent).any(dim=2).flatten().nonzero()[0])
    # The phase begins to move half a frame before the first frame whose f0 changed.
    assert 480 * (TOUCHED - F0Predictor.reach) - 240 <= first < 480 * (TOUCHED - F0Predictor.reach) - 230


def test_the_hold_back_covers_mel_source_and_f0(vocoder: HiftVocoder, config: VocoderConfig) -> None:
    field = context(config)
    last_sample = 479 + field.source_after
    assert vocoder.hold_back_frames == (last_sample + 240) // 480 + F0Predictor.reach == 20
    assert vocoder.hold_back_frames == COSYVOICE2.hold_back_frames
    assert vocoder.hold_back_frames > field.mel_after


def test_a_wider_kernel_reaches_further(config: VocoderConfig) -> None:
    wide = replace(config, resblock_kernel_sizes=(3, 7, 13))
    assert context(wide).mel_after > context(config).mel_after
    assert context(wide).hold_back(F0Predictor.reach) > context(config).hold_back(F0Predictor.reach)
