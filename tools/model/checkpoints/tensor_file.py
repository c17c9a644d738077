"""Tensors of any size with a few megabytes of memory: read from mapped safetensors files, and
written tensor by tensor in blocks of rows.

The library `safetensors` reads. It writes only what is in memory as a whole, so writing is done
here: 8 bytes of header length (little endian), a JSON header that gives dtype, shape and place of
every tensor, and the values in that order.
"""

import enum
import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cosyserve.errors import ModelError

BLOCK_VALUES = 4 << 20
"""Values of one block at most, 16 MiB of float32."""


class Precision(enum.StrEnum):
    """Number types of a checkpoint."""

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"

    @property
    def dtype(self) -> torch.dtype:
        return {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}[self.value]


class Source:
    """A tensor whose rows lie in one or several parts, in memory or mapped from a file: only the
    blocks that are asked for are read. shape: of the whole.
    """

    def __init__(self, *parts: Tensor) -> None:
        widths = {part.shape[1:] for part in parts}
        if len(widths) != 1:
            raise ValueError(f"rows of different shapes cannot be stacked: {sorted(widths)}")
        self.parts = parts
        self.shape: tuple[int, ...] = (sum(len(part) for part in parts), *widths.pop())

    @classmethod
    def stacked(cls, sources: Iterable["Source"]) -> "Source":
        """The rows of all sources, one source after the other."""
        return cls(*(part for source in sources for part in source.parts))

    def rows(self, start: int, stop: int) -> "Source":
        """Rows `start` to `stop` - 1."""
        at, pieces = 0, []
        for part in self.parts:
            pieces.append(part[max(start - at, 0) : max(stop - at, 0)])
            at += len(part)
        return Source(*pieces)

    def tensor(self) -> Tensor:
        """The whole in memory, float32."""
        return torch.cat([part.float() for part in self.parts])

    def blocks(self) -> Iterator[Tensor]:
        """Float32 pieces [rows, ...] from the first row to the last; the same rows for every
        tensor of this shape.
        """
        step = max(1, BLOCK_VALUES // max(1, math.prod(self.shape[1:])))
        for start in range(0, self.shape[0], step):
            yield self.rows(start, start + step).tensor()


def zeros(*shape: int) -> Tensor:
    """A tensor of zeros that needs memory for one of them."""
    return torch.zeros(()).expand(shape)


def rounded(values: Tensor, precision: Precision) -> Tensor:
    """Float32 values in another number type, rounded to the nearest even. Raises OverflowError for
    what is no number, or float16 cannot hold.
    """
    if not values.isfinite().all():
        raise OverflowError("it holds values that are not finite")
    largest = float(values.abs().max()) if values.numel() else 0.0
    if precision is Precision.FLOAT16 and largest > torch.finfo(torch.float16).max:
        raise OverflowError(
            f"a value of size {largest:.6g} is more than float16 can hold (65504); take bfloat16 or float32"
        )
    return values.to(precision.dtype)


def write(
    path: Path,
    tensors: Mapping[str, Source],
    precision: Precision,
    on_bytes: Callable[[int], object] = lambda count: None,
) -> None:
    """Write all tensors in the order given. on_bytes receives the bytes that have been written.
    Raises ModelError naming the tensor that does not fit the number type."""
    code = {Precision.BFLOAT16: "BF16", Precision.FLOAT16: "F16", Precision.FLOAT32: "F32"}[precision]
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}  # what transformers asks for
    place = 0
    for name, tensor in tensors.items():
        end = place + math.prod(tensor.shape) * precision.dtype.itemsize
        header[name] = {"dtype": code, "shape": list(tensor.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for name, tensor in tensors.items():
            for block in tensor.blocks():
                try:
                    data = rounded(block, precision)
                except OverflowError as error:
                    raise ModelError(f"{path}: tensor {name}: {error}") from error
                on_bytes(stream.write(data.view(torch.uint8).numpy().data))


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file by name, mapped from it, each in its own number type.
    Raises ModelError naming the file when it is none, or is cut short.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.offset_keys()}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"{path}: no safetensors file, malformed or cut short: {error}") from error


def read_sources(path: Path) -> dict[str, Source]:
    """The tensors of a checkpoint. Raises ModelError as `read_safetensors`, and for a number type
    that no checkpoint of ours has.
    """
    tensors = read_safetensors(path)
    readable = [precision.dtype for precision in Precision]
    for name, tensor in tensors.items():
        if tensor.dtype not in readable or not tensor.dim():
            raise ModelError(
                f"{path}: tensor {name} is {tensor.dtype} of shape {list(tensor.shape)}; readable are tensors with "
                f"rows in {', '.join(Precision)}"
            )
    return {name: Source(tensor) for name, tensor in tensors.items()}
