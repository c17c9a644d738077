"""The operands of `windowed_convolution`: weights in one operand type, [taps, outputs, channels],
with widths of whole tiles; buffers with margins; and what a launch reads, adds and writes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from services.token2wav.gpu.device.launcher import ceil
from services.token2wav.vocoder.causal.convolutions import merged_phases

Weights = dict[str, Tensor]
OPERANDS = {
    "ieee": torch.float32, "tf32": torch.float32, "tf32x3": torch.float32, "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}  # fmt: skip
"""Operand type of the products by precision."""


Lead = Callable[[int, int], int]
"""Kernel and dilation of a convolution -> offset of its first input column from the output's."""


def centred(kernel: int, dilation: int) -> int:
    """As many columns on each side."""
    return -(kernel // 2) * dilation


def backward(kernel: int, dilation: int) -> int:
    """The output's column is the last one that is seen."""
    return -(kernel - 1) * dilation


def forward(kernel: int, dilation: int) -> int:
    """The output's column is the first one that is seen."""
    return 0


def wide(channels: int) -> int:
    """Channels of a buffer for a layer with `channels` channels; the others are zeros."""
    return ceil(channels, 16) * 16


class Convolution:
    """One or several variants of a layer. weights: per variant [N, C, taps].

    In float16 the weights of each output are scaled by a power of two to be near 1: this is exact,
    and no weight is too small for the type. summed: compute the sum of the variants. leads: offset
    of the first input column of each variant.
    """

    def __init__(
        self, weights: list[Tensor], biases: list[Tensor], dilations: list[int], leads: list[int], dtype: torch.dtype,
        *,
        summed: bool = False,
    ) -> None:  # fmt: skip
        n, c = weights[0].shape[:2]
        self.out, self.channels, self.variants = wide(n), wide(c), len(weights)
        taps = [weight.shape[2] for weight in weights]
        padded = [
            F.pad(weight.float(), (0, 0, 0, self.channels - c, 0, self.out - n)).permute(2, 0, 1) for weight in weights
        ]
        flat = torch.cat(padded)
        largest = flat.abs().amax(dim=(0, 2))
        exponent = torch.where(largest > 0, -torch.ceil(torch.log2(largest.clamp_min(1e-30))), 0.0)
        exponent = exponent if dtype == torch.float16 else torch.zeros_like(exponent)
        self.weight = (flat * torch.exp2(exponent)[None, :, None]).to(dtype).contiguous()
        self.scale = torch.exp2(-exponent).contiguous()
        bias = F.pad(torch.stack(biases).float(), (0, self.out - n))
        self.bias = (bias.sum(0, keepdim=True) if summed else bias).contiguous()
        first = [sum(taps[:at]) for at in range(len(taps))]
        rows = list(zip(taps, dilations, first, leads, strict=True))
        self.shapes = torch.tensor(rows, dtype=torch.int32).to(flat.device)
        self.summed = self.variants if summed else 1


class Snakes:
    """Activations of several variants, from their alphas [C] each."""

    def __init__(self, alphas: list[Tensor]) -> None:
        channels = alphas[0].shape[0]
        alpha = torch.stack(alphas).double()
        padding = (0, wide(channels) - channels)
        self.turns = F.pad(alpha / math.pi, padding).float().contiguous()
        self.inverses = F.pad(1.0 / (alpha + 1e-9), padding).float().contiguous()
        self.count = len(alphas)


class ResidualBlocks:
    """Residual blocks in parallel, those with more taps first, because they take longest: per
    dilation a pair of convolutions and the activations before each. averaged: compute the mean of
    the blocks. lead: of the convolutions.
    """

    def __init__(
        self, weights: Weights, names: list[str], kernels: list[int], dilations: list[tuple[int, ...]],
        dtype: torch.dtype, lead: Lead, *,
        averaged: bool,
    ) -> None:  # fmt: skip
        order = sorted(range(len(names)), key=lambda at: -kernels[at])
        names, kernels, dilations = (
            [names[at] for at in order],
            [kernels[at] for at in order],
            [dilations[at] for at in order],
        )
        self.variants, last = len(names), len(dilations[0]) - 1

        def convolution(part: int, at: int) -> Convolution:
            widths = [each[at] if part == 1 else 1 for each in dilations]
            leads = [lead(kernel, width) for kernel, width in zip(kernels, widths, strict=True)]
            given, biases = (
                [weights[f"{name}.convs{part}.{at}.{kind}"] for name in names] for kind in ("weight", "bias")
            )
            return Convolution(given, biases, widths, leads, dtype, summed=averaged and part == 2 and at == last)

        def snakes(part: int, at: int) -> Snakes:
            return Snakes([weights[f"{name}.activations{part}.{at}.alpha"] for name in names])

        self.steps = [(snakes(1, at), convolution(1, at), snakes(2, at), convolution(2, at)) for at in range(last + 1)]


Raising = Callable[[Tensor, Tensor, int, torch.dtype], Convolution]
"""Weight, bias, rate and operand type of an upsampling -> the convolution that computes it."""


def transposed(weight: Tensor, bias: Tensor, rate: int, dtype: torch.dtype) -> Convolution:
    """A transposed convolution [in, out, K] as one that computes `rate` columns at once from ceil(K
    / rate) taps, oldest first.
    """
    c_in, c_out, kernel = weight.shape
    taps, out = ceil(kernel, rate), wide(c_out)
    padded = torch.zeros(c_in, out, taps * rate, device=weight.device)
    padded[:, :c_out, :kernel] = weight
    # Column q * rate + r sees input q - t through kernel place r + t * rate; tap 0 here is the
    # oldest input, t = taps - 1.
    grouped = padded.view(c_in, out, taps, rate).flip(2).permute(3, 1, 0, 2).reshape(rate * out, c_in, taps)
    return Convolution([grouped], [F.pad(bias, (0, out - c_out)).repeat(rate)], [1], [1 - taps], dtype)


def repeating(weight: Tensor, bias: Tensor, rate: int, dtype: torch.dtype) -> Convolution:
    """A convolution [out, in, K] that looks back over columns which are repeated `rate` times as
    one over the columns themselves that computes `rate` columns at once: taps that see repetitions
    of one column are added up.
    """
    phases = merged_phases(weight, rate)
    c_out = weight.shape[0]
    out, before = wide(c_out), phases.shape[3] - 1
    grouped = F.pad(phases, (0, 0, 0, 0, 0, out - c_out)).flatten(0, 1)
    return Convolution([grouped], [F.pad(bias, (0, out - c_out)).repeat(rate)], [1], [-before], dtype)


def strided(weight: Tensor, bias: Tensor, width: int, dtype: torch.dtype) -> Convolution:
    """A convolution [C, channels, K] over columns of `width` elements as one tap of K * width
    channels, column by column.
    """
    padded = F.pad(weight, (0, 0, 0, width - weight.shape[1]))
    return Convolution([padded.transpose(1, 2).flatten(1)[:, :, None]], [bias], [1], [0], dtype)


MARGIN = 64
"""Columns before and after a buffer, because convolutions read beyond its edges; results there are
not used.
"""


TILE_ROWS = 256
"""Maximum number of rows of a tile."""


class Columns:
    """A buffer of `variants` times `rows` columns, with margins."""

    def __init__(self, variants: int, rows: int, channels: int, dtype: torch.dtype, device: torch.device) -> None:
        # Rounded up, because the last tile reads and writes whole rows.
        self.rows = rows = ceil(rows, TILE_ROWS) * TILE_ROWS
        memory = torch.zeros((variants * rows + 2 * MARGIN) * channels, dtype=dtype, device=device)
        self.tensor, self._whole = memory[MARGIN * channels :], memory.view(-1, channels)

    def described(self, rows: int, channels: int) -> TensorDescriptor:
        """A TMA descriptor of its blocks, margins included."""
        return TensorDescriptor.from_tensor(self._whole, [rows, channels])


@dataclass(frozen=True)
class OutputColumns:
    """The columns that a convolution writes: `count` of each of `batch` windows, from column
    `start` on of a layer with `rate` columns per frame, which has `extra` columns after the end of
    the sentence. ends: first frames of the windows, and the ends of their sentences in frames.
    """

    ends: tuple[Tensor, Tensor]
    batch: int
    count: int
    start: int
    rate: int
    extra: int = 0


@dataclass(frozen=True)
class Residual:
    """What is added: `columns` per window, from `shift` on. variants: number of variants that are
    averaged with the result. shared: one buffer for all variants.
    """

    source: Columns
    columns: int
    shift: int = 0
    variants: int = 1
    shared: bool = False


@dataclass(frozen=True)
class Output:
    """Where the result is stored. raw: before the activation. active: after the activation, which
    is snake with `snakes`, or leaky with `slope`.
    """

    raw: Columns | None = None
    active: Columns | None = None
    snakes: Snakes | None = None
    slope: float = 0.0


@dataclass(frozen=True)
class Input:
    """`columns` per window, the first position at column `shift`. step: columns from one position
    to the next, of `unit` elements each; unit 0: as many as there are channels.
    """

    source: Columns
    columns: int
    shift: int = 0
    unit: int = 0
    step: int = 1
