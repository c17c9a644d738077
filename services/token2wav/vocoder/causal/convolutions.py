"""Convolutions that look back only, over columns that arrive piece by piece.

Each keeps the last columns of its input from one piece to the next. Before the first piece they are
zeros, which is also what the reference puts before a whole sentence, so pieces of any lengths give
the columns of the whole. Source: compatibility specification of CosyVoice3, section 5.1.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from services.token2wav.vocoder.hift import Convolution, Weights


class History:
    """The columns that the convolutions of one batch of streams have kept, by the name of the
    convolution: [B, C, n].
    """

    def __init__(self, columns: Mapping[str, Tensor] | None = None) -> None:
        self._columns = dict(columns or {})
        self.begun = bool(columns)
        """Whether there was a piece before."""

    @classmethod
    def joined(cls, streams: Sequence[Mapping[str, Tensor]]) -> "History":
        """One batch of streams that are equally far; their columns are [1, C, n]."""
        if len(streams) == 1:
            return cls(streams[0])
        return cls({name: torch.cat([columns[name] for columns in streams]) for name in streams[0]})

    def row(self, index: int) -> dict[str, Tensor]:
        """What one stream of the batch has to keep."""
        return {name: columns[index : index + 1].clone() for name, columns in self._columns.items()}

    def extended(self, name: str, x: Tensor, keep: int, zeros: int | None = None) -> Tensor:
        """x [B, C, T] behind the columns that were kept under this name; its last `keep` columns
        are kept instead.

        zeros: columns of zeros before the first piece, `keep` if None.
        """
        if not keep:
            return x
        before = self._columns.get(name)
        if before is None:
            before = x.new_zeros(x.shape[0], keep if zeros is None else zeros, x.shape[1]).transpose(1, 2)
        x = side_by_side(before, x)
        self._columns[name] = x[..., x.shape[-1] - keep :]
        return x

    def extended_signal(self, name: str, x: Tensor, passed: int) -> Tensor:
        """x [B, n] behind the samples that were kept under this name; of both, those after the
        first `passed` are kept instead.
        """
        before = self._columns.get(name)
        if before is not None:
            x = torch.cat([before, x], dim=1)
        self._columns[name] = x[:, passed:]
        return x


def side_by_side(first: Tensor, second: Tensor) -> Tensor:
    """[B, C, m] and [B, C, n] -> [B, C, m + n], in the memory order of the two."""
    # With an added dimension, because torch.cat preserves the memory order only in four dimensions.
    return torch.cat([first[:, :, None], second[:, :, None]], dim=-1)[:, :, 0]


class CausalConvolution:
    """[B, C, T] -> [B, C', T]: a column depends on itself and on (taps - 1) * dilation columns
    before it.
    """

    def __init__(self, weights: Weights, name: str, *, dilation: int = 1) -> None:
        self._name, self._convolution = name, Convolution(weights, name, dilation=dilation)
        self._before = (weights[f"{name}.weight"].shape[2] - 1) * dilation

    def __call__(self, x: Tensor, history: History) -> Tensor:
        return self._convolution(history.extended(self._name, x, self._before))


class StridedConvolution:
    """Each output column stands for `stride` input columns and sees one more after them: output j
    sees the inputs from (j - 1) * stride + 1 to (j + 1) * stride. So input begins one column ahead
    of a multiple of `stride`.
    """

    def __init__(self, weights: Weights, name: str, stride: int) -> None:
        self._name, self._convolution = name, Convolution(weights, name, stride=stride)
        self._stride, self._overlap = stride, weights[f"{name}.weight"].shape[2] - stride

    def __call__(self, x: Tensor, history: History) -> Tensor:
        return self._convolution(history.extended(self._name, x, self._overlap, zeros=self._stride - 1))


class RaisingConvolution:
    """[B, C, T] -> [B, C', rate * T]: every column is repeated `rate` times, and a convolution that
    looks back runs over the result. Weight [out, in, taps].

    Taps that see repetitions of one column are added up beforehand: for each of the `rate` phases
    there remains a convolution over the columns that were not repeated, with a third of the
    multiplications for the published sizes.
    """

    def __init__(self, weights: Weights, name: str, rate: int) -> None:
        weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        outputs, inputs, taps = weight.shape
        self._rate = rate
        self.before = -(-(taps - 1) // rate)
        """Columns before a column that its outputs depend on."""
        phases = torch.zeros(rate, outputs, inputs, self.before + 1, dtype=torch.float64, device=weight.device)
        for phase in range(rate):
            for tap in range(taps):
                column = (phase + tap - (taps - 1)) // rate
                phases[phase, :, :, self.before + column] += weight[:, :, tap].to(torch.float64)
        merged = {f"{name}.weight": phases.flatten(0, 1).to(weight.dtype), f"{name}.bias": bias.repeat(rate)}
        self._convolution = CausalConvolution(merged, name)

    def __call__(self, x: Tensor, history: History) -> Tensor:
        y = self._convolution(x, history).transpose(1, 2)
        return y.reshape(y.shape[0], y.shape[1] * self._rate, -1).transpose(1, 2)
