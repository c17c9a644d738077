"""Speaking rate by stretching mel over time, whole or as it arrives."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.errors import InternalFault, InvalidRequest
from cosyserve.spec import MEL_BINS

SLOWEST, FASTEST = 0.5, 2.0


@dataclass(kw_only=True)
class StretchState:
    """One sentence being stretched; `tail` [80, n] are the frames from `kept` on that a later
    output frame may need.
    """

    speed: float
    tail: Tensor
    kept: int = 0
    made: int = 0
    ended: bool = False

    @property
    def bytes(self) -> int:
        """Memory held."""
        return self.tail.numel() * self.tail.element_size()


class MelStretch:
    """Linear interpolation along time. Speed 1.25 makes T frames into int(T / 1.25); allowed 0.5 to
    2.0.
    """

    @staticmethod
    def offline(mel: Tensor, speed: float) -> Tensor:
        """[80, T] -> [80, max(1, int(T / speed))] by the reference's rule (compatibility
        specification section 6.2): the whole input is spread over the whole output, so positions
        differ a little from `step`'s."""
        _check(speed)
        if speed == 1.0 or mel.shape[1] == 0:
            return mel
        return F.interpolate(mel[None], size=max(1, int(mel.shape[1] / speed)), mode="linear")[0]

    @staticmethod
    def start(speed: float, device: torch.device | None = None) -> StretchState:
        """Raises InvalidRequest for a speed outside 0.5 to 2.0."""
        _check(speed)
        return StretchState(speed=speed, tail=torch.zeros(MEL_BINS, 0, device=device))

    @staticmethod
    def step(state: StretchState, mel: Tensor, final: bool) -> Tensor:
        """The output frames that `mel` [80, n] (n may be 0) settles, [80, m].

        Frame i is read at position (i + 0.5) * speed - 0.5; int(T / speed) frames in all, at least
        one if there was input, however the input was cut. Speed 1.0 hands frames through untouched.
        """
        if state.ended:
            raise InternalFault("mel stretch: a step after the final one")
        state.ended = final
        if state.speed == 1.0:
            return mel
        state.tail = torch.cat([state.tail.to(mel.device), mel], dim=1)
        received = state.kept + state.tail.shape[1]
        stop = int(received / state.speed)
        if final:
            stop = max(stop, min(received, 1))
        while not final and stop > state.made and math.floor(_position(stop - 1, state.speed)) + 1 >= received:
            stop -= 1
        positions = [_position(i, state.speed) for i in range(state.made, stop)]
        left = [math.floor(position) for position in positions]
        right = [min(i + 1, received - 1) for i in left]
        weight = torch.tensor([p - i for p, i in zip(positions, left, strict=True)], dtype=mel.dtype, device=mel.device)
        # Two products and a sum, not lerp: fused multiply-add would round differently in the tail
        # of a vector register.
        made = _at(state, left) * (1 - weight) + _at(state, right) * weight
        state.made = max(stop, state.made)
        drop = min(max(0, math.floor(_position(state.made, state.speed)) - state.kept), state.tail.shape[1])
        state.tail, state.kept = state.tail[:, drop:].clone(), state.kept + drop
        return made


def _position(frame: int, speed: float) -> float:
    return max(0.0, (frame + 0.5) * speed - 0.5)


def _at(state: StretchState, frames: list[int]) -> Tensor:
    return state.tail[:, [frame - state.kept for frame in frames]]


def _check(speed: float) -> None:
    if not SLOWEST <= speed <= FASTEST:
        raise InvalidRequest(f"speed {speed} is outside {SLOWEST} to {FASTEST}")
