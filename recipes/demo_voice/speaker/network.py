"""Filterbank to speaker vector: a time-delay network with attentive statistics (Snyder et al. 2018,
Okabe et al. 2018), 0.6 M parameters.

Layer norm instead of batch norm: the exported network is what was trained, and a row never depends
on its batch. Parameters are a mapping of names, as everywhere in this recipe.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.spec import SPEAKER_DIMENSION
from recipes.demo_voice.training.parameter_store import uniform_by_inputs
from services.frontend.prompts.features.fbank import BINS

WIDTH = 192
STEM_KERNEL = 5
STEM_STRIDE = 2
KERNEL = 3
DILATIONS = (1, 2, 3, 4)
ATTENTION = 64
EPSILON = 1e-5
LEAST_VARIANCE = 1e-4


def shapes() -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor; convolutions [out, in, kernel], linear layers [out, in]."""
    named: dict[str, tuple[int, ...]] = {"stem.weight": (WIDTH, BINS, STEM_KERNEL), "stem.bias": (WIDTH,)}
    for index in range(len(DILATIONS)):
        named |= {f"blocks.{index}.norm.weight": (WIDTH,), f"blocks.{index}.norm.bias": (WIDTH,)}
        named |= {f"blocks.{index}.conv.weight": (WIDTH, WIDTH, KERNEL), f"blocks.{index}.conv.bias": (WIDTH,)}
    named |= {"norm.weight": (WIDTH,), "norm.bias": (WIDTH,)}
    named |= {"attention.in.weight": (ATTENTION, WIDTH), "attention.in.bias": (ATTENTION,)}
    named |= {"attention.out.weight": (WIDTH, ATTENTION), "attention.out.bias": (WIDTH,)}
    named |= {"out.weight": (SPEAKER_DIMENSION, 2 * WIDTH), "out.bias": (SPEAKER_DIMENSION,)}
    return named


def initial(name: str, shape: tuple[int, ...]) -> Tensor:
    """Norms at one, biases at zero, weights uniform by their inputs."""
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    return torch.zeros(shape) if name.endswith("bias") else uniform_by_inputs(shape)


def embed(parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """features [B, T, 80], the mean over time taken off each bin -> speaker vectors float32 [B,
    192].

    T: frames of 10 ms, at least one. A vector has mean 0 and variance 1 over its entries: its
    length is that of 192 normal numbers, 13.9.
    """
    x = F.conv1d(
        features.transpose(1, 2), parameters["stem.weight"], parameters["stem.bias"], STEM_STRIDE, STEM_KERNEL // 2
    )
    for index, dilation in enumerate(DILATIONS):
        block = f"blocks.{index}"
        inner = F.relu(_norm(parameters, f"{block}.norm", x))
        weight, bias = parameters[f"{block}.conv.weight"], parameters[f"{block}.conv.bias"]
        x = x + F.conv1d(inner, weight, bias, 1, dilation * (KERNEL // 2), dilation)
    frames = _norm(parameters, "norm", x).transpose(1, 2)
    inner = torch.tanh(F.linear(frames, parameters["attention.in.weight"], parameters["attention.in.bias"]))
    shares = (
        F.linear(inner, parameters["attention.out.weight"], parameters["attention.out.bias"]).float().softmax(dim=1)
    )
    frames = frames.float()
    mean = (shares * frames).sum(dim=1)
    variance = (shares * (frames - mean[:, None]).square()).sum(dim=1)
    pooled = torch.cat([mean, variance.clamp(min=LEAST_VARIANCE).sqrt()], dim=1)
    vector = F.linear(pooled, parameters["out.weight"], parameters["out.bias"]).float()
    return F.layer_norm(vector, (SPEAKER_DIMENSION,), eps=EPSILON)


def _norm(parameters: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Layer norm over the channels of [B, channels, T]."""
    return F.layer_norm(
        x.transpose(1, 2), (WIDTH,), parameters[f"{name}.weight"], parameters[f"{name}.bias"], EPSILON
    ).transpose(1, 2)
