"""Random weights that depend on a name and nothing else: the same on every machine and in any order."""

import math
import zlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cosyserve import philox


@dataclass(frozen=True)
class Draws:
    """One seed; every tensor name below it has its own stream."""

    seed: int

    def normal(self, name: str, shape: tuple[int, ...], deviation: float) -> Tensor:
        """float32 of `shape`, normal with the given standard deviation."""
        count = math.prod(shape)
        values = philox.normal(self.seed, zlib.crc32(name.encode()), 0, 1, count)[0]
        return torch.from_numpy(values.copy()).reshape(shape) * deviation

    def scaled(self, name: str, shape: tuple[int, ...], gain: float = 1.0) -> Tensor:
        """As `normal`, the deviation being gain / sqrt(inputs): unit inputs give outputs of deviation `gain`. shape: [out, in, ...]."""
        return self.normal(name, shape, gain / math.sqrt(math.prod(shape[1:])))

    def below(self, name: str, limit: int, count: int) -> Tensor:
        """int32 [count], uniform in 0 .. limit - 1."""
        stream = zlib.crc32(name.encode())
        values = [int(philox.uniform(self.seed, stream, step, 0) * limit) for step in range(count)]
        return torch.from_numpy(np.array(values, dtype=np.int32))

    def signs(self, name: str, count: int) -> Tensor:
        """float32 [count] of +1 and -1, as many of one as of the other (count is even): a pattern that a plain mean does not see."""
        order = torch.argsort(self.normal(name, (count,), 1.0))
        signs = torch.ones(count)
        signs[order[: count // 2]] = -1.0
        return signs
