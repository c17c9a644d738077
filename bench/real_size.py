"""Random weights of the published sizes: what a GPU is measured with where the published weights are not at hand.

    python -m bench.real_size DIR        a whole model directory, in seconds

Source of names and shapes: compatibility specification sections 3.5, 4.7 and 5.5.
"""

import dataclasses
import math

import torch
from torch import Tensor

from services.llm.config import LlmConfig, SamplingParameters
from services.llm.engine.weights import expected_tensors

PUBLISHED_LLM = LlmConfig(
    hidden_size=896, intermediate_size=4864, layers=24, heads=14, kv_heads=2, head_size=64, text_vocabulary=151_936, rope_theta=1e6,
    rms_norm_eps=1e-6, sampling=SamplingParameters(),
)  # fmt: skip


def llm_tensors(config: LlmConfig, device: torch.device, seed: int = 0) -> dict[str, Tensor]:
    """Float32 tensors of `llm.pt` with numbers that stay of one size through the layers; the head is steep enough for a sampler to have
    likely and unlikely ids."""
    generator = torch.Generator(device).manual_seed(seed)
    tensors = {}
    for name, shape in expected_tensors(config).items():
        if name.endswith("norm.weight") or name.endswith("layernorm.weight"):
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
    return tensors


def smaller(config: LlmConfig, **changes: int) -> LlmConfig:
    """The same with other sizes."""
    return dataclasses.replace(config, **changes)  # type: ignore[arg-type]
