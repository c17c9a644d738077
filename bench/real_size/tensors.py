"""Tensors of the published sizes with random values.

Source of names and shapes: compatibility specification sections 3.5, 4.7 and 5.5.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from cosyserve.spec import END_OF_SPEECH
from services.llm.engine.weights import expected_tensors
from services.llm.generation.config import LlmConfig, SamplingParameters
from services.token2wav.flow.weights import FlowConfig
from services.token2wav.vocoder.weights import is_gain

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "models" / "demo"
SHAPES = ROOT / "tests" / "golden" / "published_shapes.json"
"""Names and shapes of the three published weight files."""
END_LOGIT = 9.0
"""Bias of the end of speech among other logits of standard deviation 3: sentences end, some sooner,
some later.
"""
PITCH_HERTZ = 150.0
GAIN = 0.7
"""Length of each filter of the vocoder."""

PUBLISHED_LLM = LlmConfig(
    hidden_size=896, intermediate_size=4864, layers=24, heads=14, kv_heads=2, head_size=64, text_vocabulary=151_936,
    rope_theta=1e6,
    rms_norm_eps=1e-6, sampling=SamplingParameters(),
)  # fmt: skip

PUBLISHED_FLOW = FlowConfig(
    vocabulary=6561, speaker=192, input_width=512, encoder_width=512, encoder_heads=8, encoder_feed_forward=2048,
    encoder_layers=6,
    channels=256, estimator_heads=8, head_width=64, transformers=4, middle=12, guidance=0.7,
)  # fmt: skip


def llm_tensors(config: LlmConfig, device: torch.device, seed: int = 0, *, ends: bool = False) -> dict[str, Tensor]:
    """Float32 tensors of `llm.pt` with numbers that stay of one size through the layers; the head
    is steep enough for a sampler to have likely and unlikely ids. ends: the end of speech is one of
    the likely ones, else it never comes."""
    generator = torch.Generator(device).manual_seed(seed)
    tensors = {}
    for name, shape in expected_tensors(config).items():
        if name.endswith("norm.weight"):
            tensors[name] = 1.0 + 0.1 * torch.randn(shape, generator=generator, device=device)
            continue
        scale = 0.1 if len(shape) == 1 else 1.0 / math.sqrt(shape[-1])
        if name == "llm_decoder.weight":
            scale *= 3.0
        if "o_proj" in name or "down_proj" in name:
            scale /= math.sqrt(2 * config.layers) / 4
        if "embed" in name:
            scale = 1.0
        tensors[name] = scale * torch.randn(shape, generator=generator, device=device)
    tensors["llm_decoder.weight"][END_OF_SPEECH], tensors["llm_decoder.bias"][END_OF_SPEECH] = (
        0.0,
        END_LOGIT if ends else -END_LOGIT,
    )
    return tensors


def sound_tensors(shapes: Mapping[str, list[int]], seed: int) -> dict[str, Tensor]:
    """Float32 tensors of `flow.pt` or `hift.pt`: matrices and convolutions that keep the size of
    what goes through, norms of 1.
    """
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes.items():
        inputs = math.prod(shape[1:]) if len(shape) > 1 else 0
        if name.endswith(("original0", "weight_g", "alpha")) or (len(shape) == 1 and name.endswith("weight")):
            tensors[name] = torch.ones(shape)
        elif inputs:
            tensors[name] = torch.randn(shape, generator=generator) / math.sqrt(inputs)
        else:
            tensors[name] = 0.05 * torch.randn(shape, generator=generator)
    return tensors


def flow_tensors() -> dict[str, Tensor]:
    """Of `flow.pt`."""
    return sound_tensors(json.loads(SHAPES.read_text())["flow.pt"], seed=1)


def vocoder_tensors() -> dict[str, Tensor]:
    """Of `hift.pt`; its voice is pitched around PITCH_HERTZ, so that the source of harmonics is at
    work, and no sample is clipped.
    """
    tensors = sound_tensors(json.loads(SHAPES.read_text())["hift.pt"], seed=2)
    tensors["f0_predictor.classifier.bias"].fill_(PITCH_HERTZ)
    for name, tensor in tensors.items():
        if is_gain(name):
            tensor.fill_(GAIN)
    return tensors
