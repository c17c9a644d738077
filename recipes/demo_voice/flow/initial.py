"""What the flow's tensors are before training: the habits of the layers they belong to."""

import math

import torch
from torch import Tensor

from recipes.demo_voice.parameters import uniform_by_inputs
from services.token2wav.flow.weights import FlowConfig, expected_tensors

TOKENS = "input_embedding.weight"
_MEANS = ("encoder_proj.bias", "decoder.estimator.final_proj.bias")


def shapes(config: FlowConfig, codes: int) -> dict[str, tuple[int, ...]]:
    """`expected_tensors`, with one row of the embedding for each code that the tokenizer has."""
    return expected_tensors(config) | {TOKENS: (codes, config.input_width)}


class Initial:
    """Values by name and shape. mean: float32 [80], the mel's; where a layer puts out mel it begins there, far from zero."""

    def __init__(self, config: FlowConfig, mean: Tensor) -> None:
        self._shapes, self._mean = expected_tensors(config), mean.cpu()

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name in _MEANS:
            return self._mean.clone()
        if name == TOKENS:
            return torch.randn(shape)
        if "pos_bias" in name:
            bound = math.sqrt(6 / sum(shape))
            return torch.empty(shape).uniform_(-bound, bound)
        if len(shape) > 1:
            return uniform_by_inputs(shape)
        matrix = self._shapes.get(name.removesuffix("bias") + "weight", ())
        if len(matrix) > 1:
            bound = 1 / math.sqrt(math.prod(matrix[1:]))
            return torch.empty(shape).uniform_(-bound, bound)
        return torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
