"""Flows small enough for Triton's interpreter, with tiles large enough for it: its time depends on
the number of programs, not of operations.
"""

import math
from typing import Any

import torch
from torch import Tensor

from services.token2wav.flow.checkpoint import ESTIMATOR, Shapes
from services.token2wav.flow.dit import weights as dit_weights
from services.token2wav.flow.dit.estimator import DitNetwork
from services.token2wav.flow.dit.weights import FREQUENCIES, DitConfig
from services.token2wav.flow.flow import Flow, VoicePrompt
from services.token2wav.flow.past import PROMPT_AND_NEWEST
from services.token2wav.flow.step_dit import weights as step_weights
from services.token2wav.flow.step_dit.estimator import StepDitNetwork
from services.token2wav.flow.step_dit.weights import StepDitConfig
from services.token2wav.flow.unet.estimator import UnetNetwork
from services.token2wav.flow.unet.weights import UnetConfig, expected_tensors
from services.token2wav.gpu.device.launcher import MANY, Launcher, Tile

SMALL = UnetConfig(
    vocabulary=6561, speaker=192, input_width=32, encoder_width=48, encoder_heads=4, encoder_feed_forward=64,
    encoder_layers=2,
    channels=32, estimator_heads=2, head_width=16, transformers=1, middle=1, guidance=0.7,
)  # fmt: skip
SMALL_DIT = DitConfig(
    vocabulary=6561, speaker=192, lookahead_channels=32, width=48, depth=2, heads=3, head_width=16, feed_forward=96,
    guidance=0.7,
)  # fmt: skip
SMALL_STEP_DIT = StepDitConfig(
    vocabulary=6561, speaker=192, input_width=32, encoder_width=40, encoder_heads=2, encoder_feed_forward=64,
    encoder_layers=1, encoder_upsampled_layers=1, width=40, depth=2, heads=2, head_width=16, feed_forward=96,
    guidance=0.7,
)  # fmt: skip


def readable(config: Any, tensors: dict[str, Tensor]) -> Flow:
    """The flow that the paged one has to be equal to."""
    if isinstance(config, StepDitConfig):
        return Flow(config, StepDitNetwork(config, tensors), torch.device("cpu"), PROMPT_AND_NEWEST)
    network = DitNetwork if isinstance(config, DitConfig) else UnetNetwork
    return Flow(config, network(config, tensors), torch.device("cpu"))


def expected(config: UnetConfig | DitConfig | StepDitConfig) -> Shapes:
    """Names and shapes of a flow's tensors."""
    if isinstance(config, StepDitConfig):
        return step_weights.expected_tensors(config)
    return dit_weights.expected_tensors(config) if isinstance(config, DitConfig) else expected_tensors(config)


def random_tensors(config: UnetConfig | DitConfig | StepDitConfig, seed: int = 1) -> dict[str, Tensor]:
    """Weights under which activations stay of order one, norms with a scale and a shift."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    dit = isinstance(config, DitConfig)
    for name, shape in expected(config).items():
        if name == ESTIMATOR + FREQUENCIES:
            tensors[name] = 100.0 ** -(torch.arange(shape[0]) / shape[0])
            continue
        drawn = torch.randn(shape, generator=generator)
        if not dit and any(part in name for part in ("norm", "block.2.", "block.3.", "out.1.")):
            drawn = 1 + 0.1 * drawn if name.endswith("weight") else 0.1 * drawn
        else:
            drawn *= 0.7 / math.sqrt(math.prod(shape[1:])) if len(shape) > 1 else 0.1
        tensors[name] = drawn
    return tensors


def large_tiles(whole: bool) -> Launcher:
    """whole: inner widths that fit into one tile are taken at once, the way of small batches."""
    small = 32 if whole else 16
    tile = ((MANY, Tile(128, 16, small, loop=2)),)
    plain = ((MANY, Tile(128, 32, small)),)
    kinds = ("widen", "wide norm", "out", "convolution", "encoder convolution", "encoder")
    narrow = ((MANY, Tile(128, 32, 128 if whole else 32)),)
    rows, inner = (512, 64) if whole else (128, 32)
    dit = ((MANY, Tile(rows, inner, inner, described=not whole)),)
    return Launcher(
        False,
        dict.fromkeys(kinds, plain)
        | dict.fromkeys(("dit in", "dit qkv", "dit out", "dit widen", "dit narrow", "step convolution"), dit)
        | {"dit position": ((MANY, Tile(rows, 0, 2 * inner)),), "dit velocity": ((MANY, Tile(64, 128, inner)),)}
        | {"qkv": tile, "narrow": narrow, "rows": ((MANY, Tile(128, 0)),), "step rows": ((MANY, Tile(128, 0)),)},
    )


def random_voice(tokens: int, seed: int = 2) -> VoicePrompt:
    generator = torch.Generator().manual_seed(seed)
    return VoicePrompt(
        torch.randint(0, 6561, (tokens,), generator=generator),
        torch.randn(2 * tokens, 80, generator=generator),
        torch.randn(192, generator=generator),
    )
