"""Convolutions that look back only, over columns that arrive piece by piece.

Each keeps the last columns of its input from one piece to the next. Before the first piece they are
zeros, which is also what the reference puts before a whole sentence, so pieces of any lengths give
the columns of the whole. Source: compatibility specification of CosyVoice3, section 5.1.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.token2wav.vocoder.hift import Convolution, Weights
from services.token2wav.vocoder.state import bytes_of


@dataclass(frozen=True)
class _Place:
    """Where the columns of one name lie among all values of a number type: `count` columns of
    `width` channels from `first` on, column by column or channel by channel. width 0: a signal of
    `count` samples.
    """

    first: int
    count: int
    width: int
    by_column: bool

    @property
    def stop(self) -> int:
        return self.first + self.count * max(1, self.width)

    def of(self, values: Tensor) -> Tensor:
        """[B, all values] -> [B, C, n], or [B, n] of a signal."""
        own = values[:, self.first : self.stop]
        if not self.width:
            return own
        if self.by_column:
            return own.view(-1, self.count, self.width).transpose(1, 2)
        return own.view(-1, self.width, self.count)


@dataclass(frozen=True)
class Kept:
    """What the convolutions of one stream keep from one piece to the next, in one tensor for each
    number type: [1, values]. So a window of a batch copies a few tensors for each stream instead of
    one for each convolution.
    """

    values: Mapping[torch.dtype, Tensor]
    places: Mapping[str, tuple[torch.dtype, _Place]]

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return bytes_of(*self.values.values())


class History:
    """The columns that the convolutions of one batch of streams have kept, by the name of the
    convolution: [B, C, n].
    """

    def __init__(self, columns: Mapping[str, Tensor] | None = None) -> None:
        self._columns = dict(columns or {})
        self.begun = bool(columns)
        """Whether there was a piece before."""

    @classmethod
    def joined(cls, streams: Sequence[Kept | None]) -> "History":
        """One batch of streams that are equally far; None: at their beginning."""
        kept = [stream for stream in streams if stream is not None]
        if not kept:
            return cls()
        values = {
            kind: torch.cat([stream.values[kind] for stream in kept]) if len(kept) > 1 else own
            for kind, own in kept[0].values.items()
        }
        return cls({name: place.of(values[kind]) for name, (kind, place) in kept[0].places.items()})

    def kept(self) -> list[Kept]:
        """What each stream of the batch has to keep, in memory of its own."""
        flat, places = dict[torch.dtype, list[Tensor]](), dict[str, tuple[torch.dtype, _Place]]()
        ends = Counter[torch.dtype]()
        for name, columns in self._columns.items():
            kind, width = columns.dtype, columns.shape[1] if columns.ndim == 3 else 0
            by_column = width > 0 and columns.stride(1) == 1
            places[name] = kind, _Place(ends[kind], columns.shape[-1], width, by_column)
            ends[kind] = places[name][1].stop
            flat.setdefault(kind, []).append((columns.transpose(1, 2) if by_column else columns).flatten(1))
        values = {kind: torch.cat(parts, dim=1) for kind, parts in flat.items()}
        streams = len(next(iter(values.values())))
        # Copied, because a row would keep the memory of the whole batch.
        return [
            Kept(
                {kind: whole if streams == 1 else whole[row : row + 1].clone() for kind, whole in values.items()},
                places,
            )
            for row in range(streams)
        ]

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
        self._columns[name] = x[..., max(0, x.shape[-1] - keep) :]
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


def merged_phases(weight: Tensor, rate: int) -> Tensor:
    """The kernel [out, in, taps] of a convolution that looks back over columns which are repeated
    `rate` times, as a kernel [rate, out, in, columns] of each of the `rate` phases over the columns
    themselves, of which the last one is repeated at the output's place.
    """
    outputs, inputs, taps = weight.shape
    before = -(-(taps - 1) // rate)
    phases = torch.zeros(rate, outputs, inputs, before + 1, dtype=torch.float64, device=weight.device)
    for phase in range(rate):
        for tap in range(taps):
            phases[phase, :, :, before + (phase + tap - (taps - 1)) // rate] += weight[:, :, tap].to(torch.float64)
    return phases.to(weight.dtype)


class RaisingConvolution:
    """[B, C, T] -> [B, C', rate * T]: every column is repeated `rate` times, and a convolution that
    looks back runs over the result. Weight [out, in, taps].

    Taps that see repetitions of one column are added up beforehand (`merged_phases`), which leaves
    a third of the multiplications for the published sizes.
    """

    def __init__(self, weights: Weights, name: str, rate: int) -> None:
        weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        phases = merged_phases(weight, rate)
        self._rate = rate
        self.before = phases.shape[3] - 1
        """Columns before a column that its outputs depend on."""
        merged = {f"{name}.weight": phases.flatten(0, 1), f"{name}.bias": bias.repeat(rate)}
        self._convolution = CausalConvolution(merged, name)

    def __call__(self, x: Tensor, history: History) -> Tensor:
        y = self._convolution(x, history).transpose(1, 2)
        return y.reshape(y.shape[0], y.shape[1] * self._rate, -1).transpose(1, 2)
