"""The work of one step for one stream, passed from the flow to the vocoder."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from services.token2wav.decoders.interface import StepInput
from services.token2wav.gpu.stream_state import PagedState


@dataclass(eq=False)
class StepWork:
    """The work of a step for one stream."""

    step_input: StepInput[PagedState]
    start: int
    mels: list[Tensor] = field(default_factory=list)
    """Frames after the prompt, float32 [n, 80] each."""
    largest: list[NDArray[np.float32]] = field(default_factory=list)
    """Largest magnitude of each frame, NaN if a value is NaN; valid on the host only after
    synchronization.
    """
    frames: int = 0
    samples: list[NDArray[np.float32]] = field(default_factory=list)
    """Also valid only after synchronization."""
    idle: bool = False
    """Nothing was computed; the stream is due again in the next step."""

    @property
    def state(self) -> PagedState:
        return self.step_input.state
