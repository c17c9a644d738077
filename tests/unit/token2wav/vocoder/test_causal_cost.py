"""What carried columns save: the multiplications of causal HiFT for a frame, with them and in
windows that compute their context again. The figures of decision 32, docs/decisions.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from cosyserve.model_directory import ModelDirectory
from services.token2wav.vocoder.causal.weights import CausalVocoderConfig, read_config
from services.token2wav.vocoder.weights import EDGE_KERNEL

PUBLISHED = replace(
    read_config(ModelDirectory(Path(__file__).parents[3] / "golden" / "tiny3")), base_channels=512, f0_channels=512
)
Blocks = list[tuple[int, tuple[int, ...]]]


def block(width: int, kernel: int, dilations: tuple[int, ...], out: int, *, again: bool) -> tuple[int, int]:
    """Multiplications of a residual block for `out` columns, and the columns of its input."""
    each, total = width * width * kernel, 0
    for dilation in reversed(dilations):
        between = out + (kernel - 1 if again else 0)
        total += each * (out + between)
        out = between + ((kernel - 1) * dilation if again else 0)
    return total, out


def multiplications(config: CausalVocoderConfig, frames: int, *, again: bool) -> int:
    """Of the convolutions of the filter network for `frames` frames. again: nothing is carried, and
    each layer computes the columns that the samples depend on.
    """
    out, total = 120 * frames + (config.n_fft // config.hop_len - 1 if again else 0), 0
    total += out * config.channels(config.levels) * 2 * config.bins * EDGE_KERNEL
    out += EDGE_KERNEL - 1 if again else 0
    blocks: Blocks = list(zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True))
    for level in reversed(range(config.levels)):
        width, rate, kernel = (
            config.channels(level + 1),
            config.upsample_rates[level],
            config.upsample_kernel_sizes[level],
        )
        costs = [block(width, size, dilations, out, again=again) for size, dilations in blocks]
        total, merged = total + sum(cost for cost, _ in costs), max(columns for _, columns in costs)
        size, dilations = config.source_resblock_kernel_sizes[level], config.source_resblock_dilation_sizes[level]
        cost, excited = block(width, size, dilations, merged, again=again)
        total += cost + excited * width * 2 * config.bins * config.source_kernel(level)
        before = -(-(kernel - 1) // rate)
        total += merged * config.channels(level) * width * (before + 1)
        out = -(-merged // rate) + (before if again else 0)
    return total + out * config.base_channels * 80 * config.pre_kernel


@pytest.mark.parametrize(("frames", "times"), [(50, 1.11), (10, 1.55)])
def test_windows_that_compute_their_context_anew(frames: int, times: float) -> None:
    carried, again = (multiplications(PUBLISHED, frames, again=again) / frames for again in (False, True))
    assert round(carried / 1e6) == 306
    assert round(again / carried, 2) == times
