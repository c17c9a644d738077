"""Memory of the keys and values of a block, apart from that of all other tensors of the process.

They are hundreds of tensors that live as long as their stream. Taken from malloc, they lie between
the temporary tensors of the passes, and when the stream is over the gaps they leave are filled with
smaller things. What is free is then in ever more pieces which fit ever less, and the process grows
although it holds no more than before.
"""

import mmap
import weakref

import torch
from torch import Tensor

_ALIGNMENT = 64
"""Bytes; that of torch's own tensors on a CPU."""
_SPARE_BYTES = 64 << 20
"""Ten blocks of the bundled model. One of the published sizes has 231 MB and is never spare: next
to computing it, fresh pages cost nothing.
"""


class Mappings:
    """Mappings of the system outside malloc, each with room for the keys and values of one block.
    Some that are no longer used wait for the next block, which then needs no fresh pages; the
    others go back to the system at once.

    For all threads: any of them may end the last tensor in a mapping.
    """

    def __init__(self, block_bytes: int) -> None:
        self._bytes = -(-max(block_bytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._spare: list[mmap.mmap] = []

    def take(self, least: int) -> Tensor:
        """uint8 [at least so many], with any content. The mapping is free again when no view of the
        tensor is left.
        """
        size = max(self._bytes, least)
        try:
            mapping = self._spare.pop() if size == self._bytes else self._new(size)
        except IndexError:
            mapping = self._new(size)
        view = memoryview(mapping)
        # The tensor and all its views refer to what it is made of.
        weakref.finalize(view, self._give, mapping).atexit = False
        return torch.frombuffer(view, dtype=torch.uint8)

    @staticmethod
    def _new(size: int) -> mmap.mmap:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def _give(self, mapping: mmap.mmap) -> None:
        if len(mapping) == self._bytes and (len(self._spare) + 1) * self._bytes <= _SPARE_BYTES:
            self._spare.append(mapping)


class BlockMemory:
    """Of one block of one stream, for the thread that computes it."""

    def __init__(self, mappings: Mappings) -> None:
        self._mappings = mappings
        self._free = torch.empty(0, dtype=torch.uint8)

    def copy(self, tensor: Tensor) -> Tensor:
        """A contiguous copy in this memory."""
        size = -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
        if size > self._free.numel():
            self._free = self._mappings.take(size)
        place, self._free = self._free[: tensor.nbytes], self._free[size:]
        return place.view(tensor.dtype).view(tensor.shape).copy_(tensor)
