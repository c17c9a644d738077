"""A flow small enough for Triton's interpreter, with tiles large enough for it: its time depends on
the number of programs, not of operations.
"""

import math

import torch
from torch import Tensor

from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.flow.unet.weights import UnetConfig, expected_tensors
from services.token2wav.gpu.device.launcher import MANY, Launcher, Tile

SMALL = UnetConfig(
    vocabulary=6561, speaker=192, input_width=32, encoder_width=48, encoder_heads=4, encoder_feed_forward=64,
    encoder_layers=2,
    channels=32, estimator_heads=2, head_width=16, transformers=1, middle=1, guidance=0.7,
)  # fmt: skip


def random_tensors(config: UnetConfig, seed: int = 1) -> dict[str, Tensor]:
    """Weights under which activations stay of order one, norms with a scale and a shift."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in expected_tensors(config).items():
        drawn = torch.randn(shape, generator=generator)
        if any(part in name for part in ("norm", "block.2.", "out.1.")):
            drawn = 1 + 0.1 * drawn if name.endswith("weight") else 0.1 * drawn
        else:
            drawn *= 0.7 / math.sqrt(math.prod(shape[1:])) if len(shape) > 1 else 0.1
        tensors[name] = drawn
    return tensors


def large_tiles(whole: bool) -> Launcher:
    """whole: inner widths that fit into one tile are taken at once, the way of small batches."""
    inner = 32 if whole else 16
    tile = ((MANY, Tile(128, 16, inner, loop=2)),)
    plain = ((MANY, Tile(128, 32, inner)),)
    kinds = ("widen", "wide norm", "out", "convolution", "encoder convolution", "encoder")
    narrow = ((MANY, Tile(128, 32, 128 if whole else 32)),)
    return Launcher(
        False, dict.fromkeys(kinds, plain) | {"qkv": tile, "narrow": narrow, "rows": ((MANY, Tile(128, 0)),)}
    )


def random_voice(tokens: int, seed: int = 2) -> VoicePrompt:
    generator = torch.Generator().manual_seed(seed)
    return VoicePrompt(
        torch.randint(0, 6561, (tokens,), generator=generator),
        torch.randn(2 * tokens, 80, generator=generator),
        torch.randn(192, generator=generator),
    )
