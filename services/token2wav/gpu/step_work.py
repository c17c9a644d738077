"""What one step does for one stream, handed from the flow to the vocoder."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from services.token2wav.decoders.interface import Stride
from services.token2wav.gpu.stream_state import PagedState


@dataclass(eq=False)
class StepWork:
    """What a step does for one stream."""

    step_input: Stride[PagedState]
    start: int
    mels: list[Tensor] = field(default_factory=list)
    """Frames behind the prompt, float32 [n, 80] each."""
    largest: list[NDArray[np.float32]] = field(default_factory=list)
    """Magnitudes in each frame, no numbers where it has some; on their way from the device until
    the step has waited.
    """
    frames: int = 0
    samples: list[NDArray[np.float32]] = field(default_factory=list)
    """On their way too."""
    idle: bool = False
    """Nothing was done after all: due again in the next step."""

    @property
    def state(self) -> PagedState:
        return self.step_input.state
