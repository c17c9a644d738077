"""Memory of the keys and values of a block, apart from that of all other tensors of the process.

They are hundreds of tensors that live as long as their stream. Taken from malloc, they lie between
the temporary tensors of the passes, and when the stream is over the gaps they leave are filled with
smaller things. What is free is then in ever more pieces which fit ever less, and the process grows
although it holds no more than before.
"""

import mmap

import torch
from torch import Tensor

_ALIGNMENT = 64
"""Bytes; that of torch's own tensors on a CPU."""
_FIRST_BYTES = 1 << 20


class BlockMemory:
    """Of one block of one stream: mappings outside malloc, which the system gets back as soon as
    the last tensor in them is gone. For the thread that computes the block.

    A mapping is twice as large as the one before. Its pages take memory when they are first written
    to, so that what is left over of it costs nothing.
    """

    def __init__(self) -> None:
        self._free = torch.empty(0, dtype=torch.uint8)
        self._next_bytes = _FIRST_BYTES

    def copy(self, tensor: Tensor) -> Tensor:
        """A contiguous copy in this memory."""
        size = -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
        if size > self._free.numel():
            self._map(size)
        place, self._free = self._free[: tensor.nbytes], self._free[size:]
        return place.view(tensor.dtype).view(tensor.shape).copy_(tensor)

    def _map(self, least: int) -> None:
        mapping = mmap.mmap(-1, max(self._next_bytes, least), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # The tensor refers to the mapping, which ends with the last view of the tensor.
        self._free = torch.frombuffer(mapping, dtype=torch.uint8)
        self._next_bytes = 2 * self._free.numel()
