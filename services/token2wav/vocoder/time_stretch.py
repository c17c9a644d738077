"""Changes the speaking rate by stretching mel over time, as a whole or as it arrives."""

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
    """One sentence being stretched. `tail` [80, n] are the frames from `first_frame` on that a
    later output frame may need.
    """

    speed: float
    tail: Tensor
    first_frame: int = 0
    produced: int = 0
    """Output frames returned so far."""
    ended: bool = False

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return self.tail.numel() * self.tail.element_size()


class MelStretch:
    """Linear interpolation over time. Speed 1.25 turns T frames into int(T / 1.25); allowed are 0.5
    to 2.0.
    """

    @staticmethod
    def offline(mel: Tensor, speed: float) -> Tensor:
        """[80, T] -> [80, max(1, int(T / speed))] by the reference's rule (compatibility
        specification section 6.2): the whole input is spread over the whole output, so positions
        differ slightly from those of `step`.
        """
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
        """The output frames that `mel` [80, n] (n may be 0) determines, [80, m].

        Frame i is read at position (i + 0.5) * speed - 0.5; int(T / speed) frames in total, at
        least one if there was input, however the input was cut. Speed 1.0 returns frames unchanged.
        """
        if state.ended:
            raise InternalFault("mel stretch: a step after the final one")
        state.ended = final
        if state.speed == 1.0:
            return mel
        state.tail = torch.cat([state.tail.to(mel.device), mel], dim=1)
        received = state.first_frame + state.tail.shape[1]
        stop = int(received / state.speed)
        if final:
            stop = max(stop, min(received, 1))
        while not final and stop > state.produced and math.floor(_position(stop - 1, state.speed)) + 1 >= received:
            stop -= 1
        positions = [_position(i, state.speed) for i in range(state.produced, stop)]
        left = [math.floor(position) for position in positions]
        right = [min(i + 1, received - 1) for i in left]
        weight = torch.tensor([p - i for p, i in zip(positions, left, strict=True)], dtype=mel.dtype, device=mel.device)
        # Two products and a sum instead of lerp, whose fused multiply-add would round differently
        # in the remainder of a vector register.
        stretched = _at(state, left) * (1 - weight) + _at(state, right) * weight
        state.produced = max(stop, state.produced)
        drop = min(max(0, math.floor(_position(state.produced, state.speed)) - state.first_frame), state.tail.shape[1])
        state.tail, state.first_frame = state.tail[:, drop:].clone(), state.first_frame + drop
        return stretched


def _position(frame: int, speed: float) -> float:
    return max(0.0, (frame + 0.5) * speed - 0.5)


def _at(state: StretchState, frames: list[int]) -> Tensor:
    return state.tail[:, [frame - state.first_frame for frame in frames]]


def _check(speed: float) -> None:
    if not SLOWEST <= speed <= FASTEST:
        raise InvalidRequest(f"speed {speed} is outside {SLOWEST} to {FASTEST}")
