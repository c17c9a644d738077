"""Random weights of networks of any size, scaled so that activations keep their magnitude through
the layers, and prompts of a wanted length.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from services.llm.engine.weights import expected_tensors
from services.llm.generation.config import LlmConfig
from services.token2wav.vocoder.weights import is_gain

END_LOGIT = 9.0
"""Bias of the end of speech among other logits of standard deviation 3: sentences end, some sooner,
some later.
"""
CONSTANT, CONSTANT_BY_NORM = 8.0, 3.0
"""A head without a bias has one through a column of its input that is the same everywhere: CONSTANT
in every embedding, and about CONSTANT_BY_NORM behind the last norm.
"""
PITCH_HERTZ = 150.0
GAIN = 0.7
"""Length of each filter of the vocoder."""


def llm_tensors(config: LlmConfig, device: torch.device, seed: int = 0, *, ends: bool = False) -> dict[str, Tensor]:
    """Float32 tensors of `llm.pt`; the logits of its head differ enough for a sampler to have
    likely and unlikely ids. ends: the end of speech is one of the likely ones, else it never comes.
    """
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
    speech = config.speech
    logit = END_LOGIT if ends else -END_LOGIT
    if speech.head_bias:
        tensors["llm_decoder.weight"][speech.end], tensors["llm_decoder.bias"][speech.end] = 0.0, logit
        return tensors
    for name, tensor in tensors.items():
        if "embed" in name:
            tensor[:, 0] = CONSTANT
        elif "o_proj" in name or "down_proj" in name:
            tensor[0] = 0.0
    tensors["llm.model.model.norm.weight"][0] = 1.0
    head = tensors["llm_decoder.weight"]
    head[:, 0] = 0.0
    head[speech.tokens :] = 0.0
    # Every special id would end the sentence; one of them is as likely as without the others.
    head[speech.tokens :, 0] = -END_LOGIT / CONSTANT_BY_NORM
    head[speech.end, 0] = logit / CONSTANT_BY_NORM
    return tensors


def sound_tensors(shapes: Mapping[str, Sequence[int]], seed: int) -> dict[str, Tensor]:
    """Float32 tensors of `flow.pt` or `hift.pt`: matrices and convolutions that keep the size of
    what goes through, norms of 1.
    """
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes.items():
        inputs = math.prod(shape[1:]) if len(shape) > 1 else 0
        if name.endswith(("original0", "weight_g", "alpha")) or (len(shape) == 1 and name.endswith("weight")):
            tensors[name] = torch.ones(tuple(shape))
        elif inputs:
            tensors[name] = torch.randn(tuple(shape), generator=generator) / math.sqrt(inputs)
        else:
            tensors[name] = 0.05 * torch.randn(tuple(shape), generator=generator)
    return tensors


def voiced_tensors(shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Float32 tensors of `hift.pt`; its voice is pitched around PITCH_HERTZ, so that the source of
    harmonics is at work, and no sample is clipped.
    """
    tensors = sound_tensors(shapes, seed=2)
    tensors["f0_predictor.classifier.bias"].fill_(PITCH_HERTZ)
    for name, tensor in tensors.items():
        if is_gain(name):
            tensor.fill_(GAIN)
    return tensors


def prompts(bundled: dict[str, dict[str, Any]], length: int) -> dict[str, dict[str, Any]]:
    """The bundled voices with prompts of `length` tokens: their own, repeated from the
    start where they are shorter.
    """
    longer = {}
    for name, voice in bundled.items():
        tokens, mel = voice["flow_prompt_speech_token"], voice["prompt_speech_feat"]
        again = torch.arange(length) % tokens.shape[1]
        frames = torch.stack([2 * again, 2 * again + 1], dim=1).flatten()
        count = torch.tensor([length], dtype=torch.int32)
        prompt = {
            f"{stage}_prompt_speech_token{part}": value
            for stage in ("llm", "flow")
            for part, value in (("", tokens[:, again]), ("_len", count))
        }
        longer[name] = voice | prompt | {"prompt_speech_feat": mel[:, frames], "prompt_speech_feat_len": 2 * count}
    return longer
