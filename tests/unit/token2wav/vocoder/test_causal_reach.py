"""How far samples of causal HiFT depend on mel and source: by the arithmetic of the configuration,
and by perturbing one frame or sample.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.model_directory import ModelDirectory
from services.token2wav.vocoder.causal.convolutions import History
from services.token2wav.vocoder.causal.source import ReferenceNoise
from services.token2wav.vocoder.causal.vocoder import CausalVocoder, load_causal_hift
from services.token2wav.vocoder.causal.weights import CausalVocoderConfig, read_config, read_weights
from services.token2wav.vocoder.receptive_field import Span
from tests.unit.token2wav.vocoder.causal_reach import (
    determined_lag,
    pitch_samples,
    samples_of_mel,
    samples_of_source,
)

BUNDLE = ModelDirectory(Path(__file__).parents[3] / "golden" / "tiny3")
FRAMES, TOUCHED = 60, 30
CPU = torch.device("cpu")
HUGE = 1e12  # at the rim of the field an ordinary change drowns in the rounding of float64


@pytest.fixture(scope="module")
def config() -> CausalVocoderConfig:
    return read_config(BUNDLE)


@pytest.fixture(scope="module")
def vocoder(config: CausalVocoderConfig) -> CausalVocoder:
    weights = {name: tensor.double() for name, tensor in read_weights(BUNDLE, config).items()}
    return CausalVocoder(config, weights, ReferenceNoise(BUNDLE, config), CPU)


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def changed(before: Tensor, after: Tensor) -> Span:
    where = (before != after).flatten().nonzero().flatten()
    return Span(int(where[0]), int(where[-1]) + 1)


def filtered(vocoder: CausalVocoder, mel: Tensor, source: Tensor) -> Tensor:
    """Without the audio limit, which would hide a change."""
    network, frames, padded = vocoder.filter, mel.shape[2], F.pad(mel, (0, 4))
    planes = network.planes(padded, network.analysed(source, frames, History(), True), History())
    return network.spectrum.synthesise(planes[:, :9], planes[:, 9:], Span(0, planes.shape[2]), Span(0, 480 * frames))


@torch.inference_mode()
def test_measured_through_the_convolutions(vocoder: CausalVocoder, config: CausalVocoderConfig) -> None:
    mel, source = noise(1, 80, FRAMES), torch.zeros(1, 480 * FRAMES, dtype=torch.float64)
    before = filtered(vocoder, mel, source)
    mel[:, :, TOUCHED] += HUGE
    field, start = samples_of_mel(config), 480 * TOUCHED
    assert changed(before, filtered(vocoder, mel, source)) == Span(start + field.start, start + field.stop)


@torch.inference_mode()
@pytest.mark.parametrize("place", [0, 7, 58, 479])
def test_measured_through_the_source(vocoder: CausalVocoder, config: CausalVocoderConfig, place: int) -> None:
    mel, source = noise(1, 80, FRAMES), noise(1, 480 * FRAMES)
    sample = 480 * TOUCHED + place
    before = filtered(vocoder, mel, source)
    source[:, sample] += HUGE
    expected = samples_of_source(config, Span(sample, sample + 1))
    assert changed(before, filtered(vocoder, mel, source)) == expected


@torch.inference_mode()
def test_measured_through_f0(vocoder: CausalVocoder, config: CausalVocoderConfig) -> None:
    mel = noise(1, 80, FRAMES)
    f0 = vocoder.f0.exact(mel, History())
    mel[:, :, TOUCHED] += 100.0
    frames, field = changed(f0, vocoder.f0.exact(mel, History())), pitch_samples(config)
    start = 480 * TOUCHED
    assert Span(480 * frames.start, 480 * frames.stop) == Span(start + field.start, start + field.stop)


def test_the_hold_back_is_what_is_not_determined(vocoder: CausalVocoder, config: CausalVocoderConfig) -> None:
    assert determined_lag(config) == 480 * vocoder.hold_back_frames + vocoder.filter.late == 480 * 4 + 3
    assert vocoder.hold_back_frames == COSYVOICE3.hold_back_frames


def test_the_context_of_windows_that_carry_nothing(config: CausalVocoderConfig) -> None:
    """The figures of docs/decisions/0032-causal-vocoder-state.md."""
    assert (samples_of_mel(config), samples_of_source(config, Span(0, 480))) == (Span(-1923, 10_676), Span(-63, 14_216))


def test_a_wider_kernel_reaches_further(config: CausalVocoderConfig) -> None:
    wide = replace(config, resblock_kernel_sizes=(3, 7, 13))
    assert samples_of_mel(wide).stop > samples_of_mel(config).stop
    assert determined_lag(wide) == determined_lag(config)
    assert determined_lag(replace(config, conv_pre_look_right=6)) == determined_lag(config) + 2 * 480


@torch.inference_mode()
def test_frames_that_have_not_come_change_nothing_that_was_said() -> None:
    """The first sample that any change of frame T can reach is 480 (T - 4) - 3, and `step` has said
    all before it.
    """
    vocoder, mel = load_causal_hift(BUNDLE, CPU), noise(80, FRAMES).float()
    first, then = vocoder.start(0, 0, window_frames=1), vocoder.start(0, 0, window_frames=1)
    (said,) = vocoder.step([first], [mel[:, :TOUCHED]], [False])
    mel[:, TOUCHED:] += 5.0
    (whole,) = vocoder.step([then], [mel], [True])
    assert said is not None
    assert whole is not None
    assert said.shape == (480 * (TOUCHED - 4) - 3,)
    assert torch.equal(said, whole[: len(said)])
