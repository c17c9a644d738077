"""The flow's tensors before training, and as `flow.pt` holds them after it.

Before training: the habits of the layers they belong to, and a
straight way through the estimator.

The estimator has to give back the noise that it is handed, 80 numbers a frame through layers that
are 128 wide; found by training alone that takes most of the time there is. Its residual paths are
linear, so they can begin as identities: the first 80 channels carry mu + mean - x to the end, which
is the velocity at time 0 if mu is right, and all else starts small and adds to it. A last layer
norm and Mish stand in the way; channels with a large constant keep the norm's scale nearly fixed, a
bias of three keeps Mish where it is a straight line.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from cosyserve.model_directory import check_tensors
from cosyserve.spec import MEL_BINS
from recipes.demo_voice.tokenizer import codes
from recipes.demo_voice.training.parameter_store import halved, require_names, save, uniform_by_inputs
from services.token2wav.flow.checkpoint import ESTIMATOR, FILE
from services.token2wav.flow.unet.weights import UnetConfig, expected_tensors

TOKENS = "input_embedding.weight"
_SMALL = 0.1
_CONSTANT = 8.0
_STRAIGHT = 3.0
_SLOPE = 1.03
"""Of Mish around `_STRAIGHT`."""
_RESIDUAL_ENDS = (
    "block2.block.2.weight",
    "attn1.to_out.0.weight",
    "attn1.to_out.0.bias",
    "ff.net.2.weight",
    "ff.net.2.bias",
)


def shapes(config: UnetConfig, rows: int) -> dict[str, tuple[int, ...]]:
    """`expected_tensors`, with one row of the embedding for each code that the tokenizer has."""
    return expected_tensors(config) | {TOKENS: (rows, config.input_width)}


class Initial:
    """Values by name and shape. mean: float32 [80], the mel's."""

    def __init__(self, config: UnetConfig, mean: Tensor) -> None:
        self._shapes, self._mean = expected_tensors(config), mean.cpu()
        wide = config.channels > MEL_BINS
        self._straight: dict[str, Callable[[Tensor], Tensor]] = _straight_way(config, mean.cpu()) if wide else {}

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        value = self._usual(name, shape)
        inner = name.removeprefix(ESTIMATOR)
        if inner == name or not self._straight:
            return self._mean.clone() if inner == "final_proj.bias" else value
        if inner.endswith(_RESIDUAL_ENDS):
            return _SMALL * value
        return self._straight[inner](value) if inner in self._straight else value

    def _usual(self, name: str, shape: tuple[int, ...]) -> Tensor:
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


def _straight_way(config: UnetConfig, mean: Tensor) -> dict[str, Callable[[Tensor], Tensor]]:
    channels, bins = config.channels, MEL_BINS
    spare = channels - bins
    everything = torch.eye(channels)

    def entrance(weight: Tensor) -> Tensor:
        into = torch.eye(bins)
        weight[:bins, :, 0] = torch.cat((-into, into, torch.zeros(bins, 2 * bins)), dim=1)
        return weight

    def entrance_bias(bias: Tensor) -> Tensor:
        return torch.cat((mean, torch.zeros(spare)))

    def tap(weight: Tensor) -> Tensor:
        return torch.cat((torch.zeros(channels, channels, 2), everything[:, :, None]), dim=2)

    def last(weight: Tensor) -> Tensor:
        weight[:bins] = tap(weight)[:bins]
        return weight

    def last_bias(bias: Tensor) -> Tensor:
        constants = torch.full((spare,), _CONSTANT)
        constants[1::2] *= -1
        return torch.cat((torch.zeros(bins), constants - constants.mean()))

    def project(weight: Tensor) -> Tensor:
        # The norm divides by this, and takes off a mean that the constant channels bring back.
        scale = _CONSTANT * math.sqrt(spare / channels) / _SLOPE
        return scale * torch.cat((torch.eye(bins), torch.full((bins, spare), -1 / spare)), dim=1)[:, :, None]

    initialisers: dict[str, Callable[[Tensor], Tensor]] = {
        "down_blocks.0.0.res_conv.weight": entrance,
        "down_blocks.0.0.res_conv.bias": entrance_bias,
        "up_blocks.0.0.res_conv.weight": lambda weight: torch.cat((everything, everything), dim=1)[:, :, None] / 2,
        "up_blocks.0.0.res_conv.bias": torch.zeros_like,
        "final_block.block.0.weight": last,
        "final_block.block.0.bias": last_bias,
        "final_block.block.2.bias": lambda bias: torch.full_like(bias, _STRAIGHT),
        "final_proj.weight": project,
        "final_proj.bias": torch.zeros_like,
    }
    for at in range(config.middle):
        initialisers[f"mid_blocks.{at}.0.res_conv.weight"] = lambda weight: everything[:, :, None].clone()
        initialisers[f"mid_blocks.{at}.0.res_conv.bias"] = torch.zeros_like
    for level in ("down_blocks.0.2", "up_blocks.0.2"):
        initialisers[f"{level}.weight"], initialisers[f"{level}.bias"] = tap, torch.zeros_like
    return initialisers


@torch.no_grad()
def start_from(bundled: Mapping[str, Tensor], drawn: Mapping[str, Tensor]) -> None:
    """Give `drawn` the values of a file that `write` wrote; rows of the embedding as
    `codes.known_ids` finds them.

    Raises ValueError when the file is of a flow of other sizes, or its speech tokens are not those
    of a tokenizer of this recipe.
    """
    require_names(bundled, drawn)
    table = bundled[TOKENS]
    ids = codes.known_ids(codes.digits_of(len(drawn[TOKENS])), table.ne(0).any(1))
    for name, value in {**bundled, TOKENS: table[ids]}.items():
        if value.shape != drawn[name].shape:
            raise ValueError(f"{name} is {list(value.shape)} in the file, expected {list(drawn[name].shape)}")
        drawn[name].copy_(value)


def expanded(parameters: Mapping[str, Tensor], config: UnetConfig, first_id: int) -> dict[str, Tensor]:
    """The embedding with a row for each of the vocabulary's ids, zeros for those that the tokenizer
    never puts out.
    """
    compact = parameters[TOKENS]
    rows = compact.new_zeros(config.vocabulary, compact.shape[1])
    rows[first_id : first_id + compact.shape[0]] = compact.detach()
    return {**parameters, TOKENS: rows}


def write(folder: Path, parameters: Mapping[str, Tensor], config: UnetConfig, first_id: int) -> Path:
    """Write `flow.pt` into `folder`. Raises ModelError unless names and shapes are those that the
    service expects.
    """
    path = folder / FILE
    tensors = halved(expanded(parameters, config, first_id))
    check_tensors(path, tensors, expected_tensors(config))
    save(path, tensors)
    return path
