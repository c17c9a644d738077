"""`hift.pt` of the bundled model: it passes its own sine waves on, as loud and as high as the mel says.

The synthesis filter overlaps frames of 16 samples every 4, so planes of constant phase leave only the average of each frame: bin 0 adds
its magnitude to it, bin 1 takes its own away. The excitation therefore drives their logarithms apart and the difference is the wave.
"""

import torch
from torch import Tensor

from cosyserve.spec import MEL_BINS
from services.token2wav.vocoder.config import EDGE_KERNEL, F0_KERNEL, F0_LAYERS, VocoderConfig
from services.token2wav.vocoder.weights import expected_tensors
from tools.hum.draws import Draws
from tools.hum.flow import LOUDNESS, MELODY, VOICE, mel_pattern

VOICE_HERTZ, MELODY_HERTZ = 23.0, 30.0
LOG_LEVEL, DRIVE, LOUDNESS_SLOPE = -0.4, 2.6, 0.8
HARMONICS = (2.4, 2.2, 2.0, 1.8, 1.5, 1.2, 1.0, 0.8, 0.6)
OFFSET = 6.0
"""Added to what is read from the mel, so that it stays positive through layers that bend below zero."""
_GAIN, _DIRECTION = ".parametrizations.weight.original0", ".parametrizations.weight.original1"


def weights(config: VocoderConfig, draws: Draws) -> dict[str, Tensor]:
    """Every tensor of `expected_tensors`, float32, in the naming with gain and direction apart."""
    plain = {name: _quiet(name, shape, draws) for name, shape in _fused(expected_tensors(config)).items()}
    plain["m_source.l_linear.weight"] = torch.tensor([HARMONICS])[:, : config.harmonics]
    plain["m_source.l_linear.bias"].zero_()
    _read_pitch(plain, draws)
    _read_loudness(plain, config, draws)
    _speak(plain, config)
    return _split(plain, expected_tensors(config))


def _quiet(name: str, shape: tuple[int, ...], draws: Draws) -> Tensor:
    if name.endswith(".alpha"):
        return torch.ones(shape) + draws.normal(name, shape, 0.1)
    if len(shape) == 1:
        return torch.zeros(shape)
    made = draws.scaled(name, shape, 0.1)
    if "resblocks" in name:
        made[:3] = 0.0
    return made


def _read_pitch(plain: dict[str, Tensor], draws: Draws) -> None:
    """f0 = VOICE_HERTZ * (OFFSET + mean of the mel) + MELODY_HERTZ * its melody, each averaged over eleven frames.

    The melody comes with a twin that is nothing but OFFSET: at the ends of a sentence, where layers see zeros, both fade alike.
    """
    taps = [plain[f"f0_predictor.condnet.{2 * layer}.weight"] for layer in range(F0_LAYERS)]
    for row, pattern in enumerate((mel_pattern(draws, VOICE), mel_pattern(draws, MELODY), torch.zeros(MEL_BINS))):
        taps[0][row] = pattern[:, None] / (MEL_BINS * F0_KERNEL)
        plain["f0_predictor.condnet.0.bias"][row] = OFFSET
        for later in taps[1:]:
            later[row] = 0.0
            later[row, row] = 1.0 / F0_KERNEL
    classifier = plain["f0_predictor.classifier.weight"]
    classifier *= 30.0
    classifier[0, :3] = torch.tensor([VOICE_HERTZ, MELODY_HERTZ, -MELODY_HERTZ])


def _read_loudness(plain: dict[str, Tensor], config: VocoderConfig, draws: Draws) -> None:
    """Channel 0 of the first levels, channel 2 of the last: OFFSET + the mel's loudness, interpolated up to a value per spectrum frame."""
    first = plain["conv_pre.weight"]
    first[0] = mel_pattern(draws, LOUDNESS)[:, None] / (MEL_BINS * EDGE_KERNEL)
    plain["conv_pre.bias"][0] = OFFSET
    for level, (rate, kernel) in enumerate(zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True)):
        up, down = plain[f"ups.{level}.weight"], plain[f"source_downs.{level}.weight"]
        up[:, :3] = 0.0
        down[:3] = 0.0
        away = (torch.arange(kernel) - (kernel - 1) / 2).abs()
        up[0] = 0.0
        up[0, 2 if level == config.levels - 1 else 0] = (1.0 - away / rate).clamp(min=0.0)


def _speak(plain: dict[str, Tensor], config: VocoderConfig) -> None:
    excitation = plain[f"source_downs.{config.levels - 1}.weight"]
    # Bin 0 of the analysis is the sum under a Hann window of n_fft samples. It comes in with both signs, since the last activation lets
    # only what is above zero through.
    excitation[0, 0, 0], excitation[1, 0, 0] = 2.0 / config.n_fft, -2.0 / config.n_fft
    post, level = plain["conv_post.weight"], plain["conv_post.bias"]
    post[:2] = 0.0
    post[config.bins :] *= 0.1
    middle = EDGE_KERNEL // 2
    for plane, sign in ((0, 1.0), (1, -1.0)):
        post[plane, 0, middle], post[plane, 1, middle] = sign * DRIVE, -sign * DRIVE
        post[plane, 2, middle] = LOUDNESS_SLOPE
        level[plane] = LOG_LEVEL - LOUDNESS_SLOPE * OFFSET
    level[2 : config.bins] = -6.0


def _fused(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {name.replace(_DIRECTION, ".weight"): shape for name, shape in shapes.items() if not name.endswith(_GAIN)}


def _split(plain: dict[str, Tensor], expected: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Weight norm undone: a row of zeros is a gain of zero on an arbitrary direction."""
    made = {}
    for name in expected:
        weight = plain[name.replace(_GAIN, ".weight").replace(_DIRECTION, ".weight")]
        if name.endswith((_GAIN, _DIRECTION)):
            length = torch.linalg.vector_norm(weight, dim=(1, 2), keepdim=True)
            weight = length if name.endswith(_GAIN) else torch.where(length > 0, weight, torch.ones_like(weight))
        made[name] = weight
    return made
