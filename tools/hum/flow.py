"""`flow.pt` of the bundled model: a random network in which three things have a channel of their own.

Through the estimator runs a residual stream of which channels 0, 1 and 2 are written once and then only passed on: the voice (mean of
the speaker's vector), a melody and a loudness (each a fixed mixture of mu, so each speech token has one). At the end they become the
mean of the mel bins and two patterns of signs across them, which the vocoder reads back. All other channels are random.
"""

import math

import torch
from torch import Tensor

from cosyserve.spec import MEL_BINS
from services.token2wav.flow.weights import ESTIMATOR, FlowConfig, expected_tensors
from tools.hum.draws import Draws

VOICE, MELODY, LOUDNESS = range(3)
KEPT = slice(0, 3)
VOICE_LEVEL = 3.0
"""What the voice channel holds: plus or minus this."""
_MU, _SPEAKER = slice(MEL_BINS, 2 * MEL_BINS), slice(2 * MEL_BINS, 3 * MEL_BINS)


def voice_direction(draws: Draws, width: int) -> Tensor:
    """Unit vector [width]; speaker vectors along it hum high, against it low."""
    return draws.signs("voice direction", width) / math.sqrt(width)


def mel_pattern(draws: Draws, channel: int) -> Tensor:
    """float32 [80]: how a kept channel lies across the mel bins."""
    return torch.ones(MEL_BINS) if channel == VOICE else draws.signs(f"mel pattern {channel}", MEL_BINS)


def weights(config: FlowConfig, draws: Draws) -> dict[str, Tensor]:
    """Every tensor of `expected_tensors`, float32."""
    made = {name: _random(name, shape, draws) for name, shape in expected_tensors(config).items()}
    affine = "spk_embed_affine_layer.weight"
    made[affine] = made[affine] * 0.3 + VOICE_LEVEL * voice_direction(draws, config.speaker)
    made["spk_embed_affine_layer.bias"].zero_()
    _keep_channels(made, config, draws)
    return made


def _random(name: str, shape: tuple[int, ...], draws: Draws) -> Tensor:
    norm = ".norm" in name or "after_norm" in name or ".out.1." in name or ".block.2." in name
    if norm:
        return torch.ones(shape) if name.endswith("weight") else torch.zeros(shape)
    if name.startswith("input_embedding"):
        return draws.normal(name, shape, 1.0)
    if len(shape) == 1 or "pos_bias" in name:
        return draws.normal(name, shape, 0.02)
    # Branches that add to the stream add a little: a dozen of them must not drown what came in.
    return draws.scaled(name, shape, 0.4 if name.endswith(("linear_out.weight", "w_2.weight", "to_out.0.weight", "net.2.weight")) else 1.0)


def _keep_channels(made: dict[str, Tensor], config: FlowConfig, draws: Draws) -> None:
    levels = ["down_blocks.0", *(f"mid_blocks.{at}" for at in range(config.middle)), "up_blocks.0"]
    for level in (f"{ESTIMATOR}{name}" for name in levels):
        for part in ("weight", "bias"):
            made[f"{level}.0.block2.block.2.{part}"][KEPT] = 0.0
            for at in range(config.transformers):
                made[f"{level}.1.{at}.attn1.to_out.0.{part}"][KEPT] = 0.0
                made[f"{level}.1.{at}.ff.net.2.{part}"][KEPT] = 0.0
        _pass_on(made[f"{level}.0.res_conv.weight"], made[f"{level}.0.res_conv.bias"])
    for name in ("down_blocks.0.2", "up_blocks.0.2", "final_block.block.0"):
        _pass_on(made[f"{ESTIMATOR}{name}.weight"], made[f"{ESTIMATOR}{name}.bias"])
    entrance = made[f"{ESTIMATOR}down_blocks.0.0.res_conv.weight"]
    entrance[KEPT] = 0.0
    entrance[VOICE, _SPEAKER, 0] = 1.0 / MEL_BINS
    entrance[MELODY, _MU, 0] = draws.scaled("melody of mu", (1, MEL_BINS), 1.5)[0]
    entrance[LOUDNESS, _MU, 0] = draws.scaled("loudness of mu", (1, MEL_BINS), 1.5)[0]
    exit_ = made[f"{ESTIMATOR}final_proj.weight"]
    exit_ *= 0.5
    for channel, gain in ((VOICE, 1.2), (MELODY, 1.0), (LOUDNESS, 1.0)):
        exit_[:, channel, 0] = gain * mel_pattern(draws, channel)


def _pass_on(weight: Tensor, bias: Tensor) -> None:
    """Make output channels 0..2 of a causal convolution equal to the same input channels of the frame itself, its last tap."""
    weight[KEPT] = 0.0
    bias[KEPT] = 0.0
    for channel in range(*KEPT.indices(3)):
        weight[channel, channel, -1] = 1.0
