"""What the chip cannot go below, in milliseconds, from the sizes of the published model and this
machine's ceilings.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from bench.real_size import SHAPES
from cosyserve.spec import CHUNK_FRAMES, EULER_STEPS

BYTES_A_WEIGHT = 2
GUIDANCE_ROWS = 2
VOCODER_FLOP = 35.2e9
"""Of a window of 50 frames with the context that its convolutions need."""
FIRST_TOKENS = 16
"""13 behind a prompt of 87, and three that the flow looks at."""


@dataclass(frozen=True)
class LowerBounds:
    """ceilings: as `bench.gpu.timing` gives them."""

    ceilings: Mapping[str, float]

    def flow(self, units: int) -> float:
        """Of a pass: weights read once a step, or the products of all rows."""
        weights = estimator_weights()
        bytes_read = EULER_STEPS * weights * BYTES_A_WEIGHT / (self.ceilings["read_terabytes_per_second"] * 1e9)
        operations = (
            2 * weights * EULER_STEPS * GUIDANCE_ROWS * CHUNK_FRAMES * units / (self.ceilings["bf16_teraflops"] * 1e9)
        )
        return max(bytes_read, operations)

    def vocoder(self, windows: int = 1) -> float:
        """In float16, which has the rate of bfloat16."""
        return windows * VOCODER_FLOP / (self.ceilings["bf16_teraflops"] * 1e9)

    def tokens(self, step: float) -> float:
        """Of the tokens before the first sound. step: milliseconds, floor of a decode step."""
        return FIRST_TOKENS * step


def estimator_weights() -> int:
    """Numbers in the flow's estimator."""
    shapes = json.loads(SHAPES.read_text())["flow.pt"]
    return sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("decoder.estimator"))
