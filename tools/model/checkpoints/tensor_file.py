"""Safetensors files, written tensor by tensor in blocks of rows, so that a model of any size needs
a few megabytes of memory.

The format is 8 bytes of header length (little endian), a JSON header that gives dtype, shape and
place of every tensor, and the values in that order.
"""

import enum
import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import ModelError

Block = NDArray[np.float32]
_LARGEST_HEADER = 100_000_000
_WIDTHS = {"F32": 4, "F16": 2, "BF16": 2}
BLOCK_VALUES = 4 << 20
"""Values of one block at most, 16 MiB of float32."""


class Precision(enum.StrEnum):
    """Number types of a checkpoint."""

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"

    @property
    def code(self) -> str:
        """What safetensors calls it."""
        return {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}[self.value]

    @property
    def size(self) -> int:
        """Bytes of a value."""
        return 4 if self is Precision.FLOAT32 else 2


@dataclass(frozen=True)
class Source:
    """A tensor that can be read. shape: of the whole; `blocks`: float32 pieces [rows, ...] from the
    first row to the last.
    """

    shape: tuple[int, ...]
    blocks: Callable[[], Iterable[Block]]

    def array(self) -> Block:
        """The whole tensor in memory."""
        pieces = list(self.blocks())
        return np.concatenate(pieces) if len(pieces) != 1 else pieces[0]


def held(values: NDArray[np.float32]) -> Source:
    """A tensor in memory, or mapped from a file: only the blocks that are asked for are read."""

    def blocks() -> Iterator[Block]:
        step = max(1, BLOCK_VALUES // max(1, math.prod(values.shape[1:])))
        for start in range(0, len(values), step):
            yield values[start : start + step]

    return Source(values.shape, blocks)


def zeros(shape: tuple[int, ...]) -> Source:
    """A tensor of zeros."""

    def blocks() -> Iterator[Block]:
        step = max(1, BLOCK_VALUES // max(1, math.prod(shape[1:])))
        for start in range(0, shape[0], step):
            yield np.zeros((min(step, shape[0] - start), *shape[1:]), np.float32)

    return Source(shape, blocks)


def stacked(parts: Sequence[Source]) -> Source:
    """The rows of all parts, one part after the other."""
    widths = {part.shape[1:] for part in parts}
    if len(widths) != 1:
        raise ValueError(f"rows of different shapes cannot be stacked: {sorted(widths)}")
    return Source(
        (sum(part.shape[0] for part in parts), *widths.pop()),
        lambda: (block for part in parts for block in part.blocks()),
    )


def rows(tensor: Source, start: int, stop: int) -> Source:
    """Rows `start` to `stop` - 1."""

    def blocks() -> Iterator[Block]:
        at = 0
        for block in tensor.blocks():
            piece = block[max(start - at, 0) : max(stop - at, 0)]
            at += len(block)
            if len(piece):
                yield piece

    return Source((stop - start, *tensor.shape[1:]), blocks)


def encode(values: Block, precision: Precision) -> bytes:
    """Little-endian bytes, rounded to the nearest even. Raises OverflowError for what is no number,
    or float16 cannot hold.
    """
    wide = np.ascontiguousarray(values, dtype="<f4")
    if not np.isfinite(wide).all():
        raise OverflowError("it holds values that are not finite")
    if precision is Precision.FLOAT32:
        return wide.tobytes()
    if precision is Precision.FLOAT16:
        largest = float(np.abs(wide).max(initial=0.0))
        if largest > float(np.finfo(np.float16).max):
            raise OverflowError(
                f"a value of size {largest:.6g} is more than float16 can hold (65504); take bfloat16 or float32"
            )
        return wide.astype("<f2").tobytes()
    bits = wide.view("<u4")
    # What is cut off is more than half, or half and the last kept bit odd: carry. Values are
    # finite, so the carry never makes a NaN.
    return (
        ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype("<u2").tobytes()
    )


def decode(data: bytes | memoryview, code: str) -> Block:
    """Float32 values [n] of bytes that `encode` or another writer made. Raises ValueError for other
    number types.
    """
    if code == "F32":
        return np.frombuffer(data, "<f4")
    if code == "F16":
        return np.frombuffer(data, "<f2").astype(np.float32)
    if code == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    raise ValueError(f"number type {code} is none of F32, F16, BF16")


def write(
    path: Path,
    tensors: Mapping[str, Source],
    precision: Precision,
    on_bytes: Callable[[int], object] = lambda count: None,
) -> None:
    """Write all tensors in the order given. on_bytes receives the bytes that have been written.
    Raises ModelError naming the tensor that does not fit the number type."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}  # what transformers asks for
    place = 0
    for name, tensor in tensors.items():
        size = math.prod(tensor.shape) * precision.size
        header[name] = {"dtype": precision.code, "shape": list(tensor.shape), "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for name, tensor in tensors.items():
            written = 0
            for block in tensor.blocks():
                try:
                    data = encode(block, precision)
                except OverflowError as error:
                    raise ModelError(f"{path}: tensor {name}: {error}") from error
                stream.write(data)
                written += len(data)
                on_bytes(len(data))
            if written != math.prod(tensor.shape) * precision.size:
                raise AssertionError(f"tensor {name} came as {written} bytes, its shape {tensor.shape} says otherwise")


@dataclass(frozen=True)
class Entry:
    """Where a tensor of a file lies. start: byte in the file."""

    code: str
    shape: tuple[int, ...]
    start: int
    size: int


def entries(path: Path) -> dict[str, Entry]:
    """What a safetensors file holds. Raises ModelError naming the file when it is none, or is cut
    short.
    """
    length = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(8)
        count = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= count <= min(_LARGEST_HEADER, length - 8):
            raise ModelError(
                f"{path}: no safetensors file, or cut short: its header would have {count} bytes, the file has {length}"
            )
        text = stream.read(count)
    try:
        header = json.loads(text)
        entries_by_name = {}
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                entries_by_name[name] = Entry(
                    str(entry["dtype"]), tuple(int(side) for side in entry["shape"]), 8 + count + start, end - start
                )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"{path}: the header of this safetensors file is malformed ({type(error).__name__}: {error})"
        ) from error
    for name, entry in entries_by_name.items():
        values = math.prod(entry.shape)
        if min(entry.shape, default=0) < 0 or entry.size != values * _WIDTHS.get(
            entry.code, entry.size // max(1, values)
        ):
            raise ModelError(
                f"{path}: malformed: tensor {name} of type {entry.code} and shape {list(entry.shape)} has {entry.size} "
                "bytes"
            )
    last = max((entry.start + entry.size for entry in entries_by_name.values()), default=8 + count)
    if last > length or any(entry.start < 8 + count or entry.size < 0 for entry in entries_by_name.values()):
        raise ModelError(f"{path}: cut short: its tensors end at byte {last}, the file at {length}")
    return entries_by_name


def stored(path: Path, entry: Entry) -> Source:
    """A tensor of a file, read block by block. Raises ModelError for a number type that no
    checkpoint of ours has.
    """
    if entry.code not in _WIDTHS:
        raise ModelError(f"{path}: holds a tensor of type {entry.code}, readable are {', '.join(_WIDTHS)}")

    def blocks() -> Iterator[Block]:
        row = math.prod(entry.shape[1:])
        step, width = max(1, BLOCK_VALUES // max(1, row)), entry.size // max(1, math.prod(entry.shape))
        with path.open("rb") as stream:
            stream.seek(entry.start)
            for start in range(0, entry.shape[0], step):
                count = min(step, entry.shape[0] - start)
                yield decode(stream.read(count * row * width), entry.code).reshape(count, *entry.shape[1:])

    return Source(entry.shape, blocks)
