"""Changes the speaking rate by stretching mel over time, as a whole or as it arrives."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.errors import InternalFault
from cosyserve.spec import MEL_BINS


class MelStretch:
    """One sentence that is stretched by linear interpolation over time. Speed 1.25 turns T frames
    into int(T / 1.25).
    """

    def __init__(self, speed: float, device: torch.device | None = None) -> None:
        self.speed = speed
        self._tail = torch.zeros(MEL_BINS, 0, device=device)
        """[80, n]: the frames from `_first_frame` on that a later output frame may need."""
        self._first_frame = self._produced = 0
        self._ended = False

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return self._tail.nbytes

    @staticmethod
    def offline(mel: Tensor, speed: float) -> Tensor:
        """[80, T] -> [80, max(1, int(T / speed))] by the reference's rule (compatibility
        specification section 6.2): the whole input is spread over the whole output, so positions
        differ slightly from those of `step`.
        """
        if speed == 1.0 or mel.shape[1] == 0:
            return mel
        return F.interpolate(mel[None], size=max(1, int(mel.shape[1] / speed)), mode="linear")[0]

    def step(self, mel: Tensor, final: bool) -> Tensor:
        """The output frames that `mel` [80, n] (n may be 0) determines, [80, m].

        Frame i is read at position (i + 0.5) * speed - 0.5; int(T / speed) frames in total, at
        least one if there was input, however the input was cut. Speed 1.0 returns frames unchanged.
        """
        if self._ended:
            raise InternalFault("mel stretch: a step after the final one")
        self._ended = final
        if self.speed == 1.0:
            return mel
        self._tail = torch.cat([self._tail.to(mel.device), mel], dim=1)
        received = self._first_frame + self._tail.shape[1]
        stop = int(received / self.speed)
        if final:
            stop = max(stop, min(received, 1))
        while not final and stop > self._produced and math.floor(self._position(stop - 1)) + 1 >= received:
            stop -= 1
        positions = [self._position(i) for i in range(self._produced, stop)]
        left = [math.floor(position) for position in positions]
        right = [min(i + 1, received - 1) for i in left]
        weight = torch.tensor([p - i for p, i in zip(positions, left, strict=True)], dtype=mel.dtype, device=mel.device)
        # Two products and a sum instead of lerp, whose fused multiply-add would round differently
        # in the remainder of a vector register.
        stretched = self._at(left) * (1 - weight) + self._at(right) * weight
        self._produced = max(stop, self._produced)
        drop = min(max(0, math.floor(self._position(self._produced)) - self._first_frame), self._tail.shape[1])
        self._tail, self._first_frame = self._tail[:, drop:].clone(), self._first_frame + drop
        return stretched

    def _position(self, frame: int) -> float:
        return max(0.0, (frame + 0.5) * self.speed - 0.5)

    def _at(self, frames: list[int]) -> Tensor:
        return self._tail[:, [frame - self._first_frame for frame in frames]]
