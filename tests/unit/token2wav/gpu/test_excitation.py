"""The vocoder's source on a GPU draws the same noise and follows the same phase as on the CPU, at
the start, inside and at the end of a sentence.
"""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

if find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs Triton's interpreter", allow_module_level=True)

from cosyserve import philox
from cosyserve.model_directory import ModelDirectory
from services.token2wav.gpu.device.launcher import Launcher, ceil
from services.token2wav.gpu.kernels.excitation import excitation
from services.token2wav.gpu.kernels.held_excitation import held_excitation, held_waves
from services.token2wav.vocoder.causal.source import CausalSource
from services.token2wav.vocoder.causal.weights import read_config as read_causal_config
from services.token2wav.vocoder.causal.weights import read_weights as read_causal_weights
from services.token2wav.vocoder.source import Source
from services.token2wav.vocoder.weights import load_weights, read_config

TINY, TINY3 = (ModelDirectory(Path(__file__).parents[3] / "golden" / name) for name in ("tiny", "tiny3"))
SEED, SENTENCE = 0xFEDCBA9876543210, 7


@torch.inference_mode()
@pytest.mark.parametrize(("first", "end"), [(0, 1 << 20), (9, 1 << 20), (17, 20)])
def test_it_is_the_cpus(first: int, end: int) -> None:
    config = read_config(TINY)
    weights = load_weights(TINY, config)
    source, frames = Source(config, weights, torch.device("cpu")), 30
    f0 = torch.tensor([0.0, 180.0, 400.0, 5.0, 333.3] * 6)
    real = min(end, frames)
    noise = torch.from_numpy(philox.normal(SEED, SENTENCE, 0, 480 * real, config.harmonics))[None]
    wanted = source.generate(f0[None, :real], None, noise, ended=True)[0][0]
    # The window's frames are first - 3 .. first + 7, its samples those from frame first - 2 on.
    held = torch.arange(first - 3, first + 8)
    inside = (held >= 0) & (held < real)
    pitch = torch.where(inside, f0[held.clamp(0, frames - 1)], 0.0)
    multiples = torch.arange(1, config.harmonics + 1, dtype=torch.float32)
    turns_of = lambda hertz: torch.remainder(hertz[:, None] * multiples / 24000, 1.0).double() * 480  # noqa: E731
    phase_before = turns_of(f0[: max(first - 3, 0)]).sum(0)
    turns = turns_of(pitch)
    centres = torch.remainder(turns.cumsum(0) + phase_before, 1.0)
    count = 480 * 8
    found = torch.full((1, count), float("nan"))
    words = torch.tensor([[SEED & 0xFFFFFFFF, SEED >> 32, SENTENCE]], dtype=torch.int64).to(torch.int32)
    merge = [weights[f"m_source.l_linear.{name}"].flatten() for name in ("weight", "bias")]
    Launcher()(
        excitation, (ceil(count, 512), 1), pitch[None].contiguous(), centres[None].contiguous(),
        turns[None].contiguous(), *merge, found,
        torch.tensor([first], dtype=torch.int32), torch.tensor([end], dtype=torch.int32), words, 1, count, len(held),
        0, len(held), 1,
        -2 * 480, 3,
        config.nsf_alpha, config.nsf_sigma, config.nsf_voiced_threshold, H=config.harmonics, HOP=480, BLOCK=512,
    )  # fmt: skip
    begin, last = max(480 * (first - 2), 0), min(480 * (first + 6), 480 * real)
    torch.testing.assert_close(
        found[0, begin - 480 * (first - 2) : last - 480 * (first - 2)], wanted[begin:last], rtol=0, atol=2e-6
    )


@torch.inference_mode()
@pytest.mark.parametrize(("first", "end"), [(0, 1 << 20), (9, 1 << 20), (17, 20)])
def test_waves_that_stand_still_are_the_cpus(first: int, end: int) -> None:
    """Of causal HiFT; the sum of phase that is kept is the CPU's too, to the bit."""
    config = read_causal_config(TINY3)
    weights = read_causal_weights(TINY3, config)
    source, frames = CausalSource(config, weights, torch.device("cpu")), 30
    f0 = torch.tensor([0.0, 180.0, 400.0, 5.0, 333.3] * 6)
    real = min(end, frames)
    noise = torch.from_numpy(philox.uniforms(SEED, SENTENCE, 0, 480 * real, config.harmonics))[None]
    wanted = source.generate(f0[None, :real], None, noise)[0][0]
    # The window's frames with pitch are first - 3 .. first + 7, two are left out before them, and
    # its samples are those from frame first - 3 on.
    held = torch.arange(first - 5, first + 8)
    pitch = torch.where((held >= 0) & (held < real), f0[held.clamp(0, frames - 1)], 0.0)[None].contiguous()
    totals = torch.zeros(2, config.harmonics, dtype=torch.float64)
    if first > 3:
        totals[1] = source.waves(f0[None, : first - 3], None)[2][0]
    slot, count = torch.tensor([1], dtype=torch.int32), torch.tensor([7], dtype=torch.int32)
    waves, samples = torch.full((1, 11, config.harmonics), float("nan")), 480 * 11
    launch, found = Launcher(), torch.full((1, samples), float("nan"))
    launch(
        held_waves, (1,), pitch, slot, count, totals, waves, 13, 2, 11, config.nsf_alpha, config.nsf_voiced_threshold,
        RATE=24000, HOP=480, H=config.harmonics, HP=16, BF=16,
    )  # fmt: skip
    passed = min(max(first + 4, 0), real)
    assert torch.equal(totals[1], source.waves(f0[None, :passed], None)[2][0])
    merge = [weights[f"m_source.l_linear.{name}"].flatten() for name in ("weight", "bias")]
    words = torch.tensor([[SEED & 0xFFFFFFFF, SEED >> 32, SENTENCE]], dtype=torch.int64).to(torch.int32)
    launch(
        held_excitation, (ceil(samples, 512), 1), pitch, waves, *merge, found,
        torch.tensor([first], dtype=torch.int32), torch.tensor([end], dtype=torch.int32), words, samples, 13, 2, 11, 1,
        -3 * 480, 3, config.nsf_alpha, config.nsf_sigma, config.nsf_voiced_threshold, H=config.harmonics, HOP=480,
        BLOCK=512,
    )  # fmt: skip
    begin, last = max(480 * (first - 3), 0), min(480 * (first + 8), 480 * real)
    torch.testing.assert_close(
        found[0, begin - 480 * (first - 3) : last - 480 * (first - 3)], wanted[begin:last], rtol=0, atol=1e-6
    )
