"""How long work takes on a GPU, what the GPU can reach (bytes and operations a second, the time of
a kernel that does nothing), and the floor of each stage that follows from it.
"""

import json
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from bench.real_size import SHAPES
from cosyserve.spec import CHUNK_FRAMES, EULER_STEPS

BYTES_A_WEIGHT = 2
GUIDANCE_ROWS = 2
VOCODER_FLOP = 35.2e9
"""Of a window of 50 frames with the context that its convolutions need."""
AUDIO_FLOP, AUDIO_BYTES = 184e9, 0.7e9
"""Of a second of sound: products of the LLM (18), the flow (130) and the vocoder (36), and keys and
values that are read with six blocks behind it.
"""
FIRST_TOKENS = 16
"""13 behind a prompt of 87, and three that the flow looks at."""


def once(work: Callable[[], object]) -> float:
    """Milliseconds on the device between two events around `work`: what the host adds while the
    device waits counts.
    """
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def timed(work: Callable[[], object], repeats: int = 20, warm: int = 3) -> float:
    """Milliseconds on the device, the median. warm: runs before that do not count."""
    for _ in range(warm):
        work()
    return statistics.median(once(work) for _ in range(repeats))


def ceilings() -> dict[str, float]:
    """copy (read and written) and read in TB/s, a product of 8192 x 8192 bfloat16 matrices in
    TFLOP/s, and microseconds of the smallest kernel in a CUDA graph."""
    source = torch.randn(1 << 30, device="cuda")
    target = torch.empty_like(source)
    size = source.numel() * 4
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    one = torch.zeros(1, device="cuda")
    one.add_(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(1000):
            one.add_(1)
    rates = {
        "copy_terabytes_per_second": 2 * size / timed(lambda: target.copy_(source), 10, 1) / 1e9,
        "read_terabytes_per_second": size / timed(lambda: source.sum(), 10, 1) / 1e9,
        "bf16_teraflops": 2 * 8192**3 / timed(lambda: a @ b, 10, 1) / 1e9,
        "kernel_us": timed(graph.replay, 10, 1),
    }
    for name, value in rates.items():
        print(f"{name}: {value:.2f}", flush=True)
    return rates


@dataclass(frozen=True)
class LowerBounds:
    """What the chip cannot go below, in milliseconds, from the sizes of the published model.
    ceilings: as `ceilings` returns them.
    """

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

    def audio(self) -> float:
        """Seconds of sound in a second: the most, not the least."""
        operations = AUDIO_FLOP / (self.ceilings["bf16_teraflops"] * 1e12)
        return 1 / (operations + AUDIO_BYTES / (self.ceilings["copy_terabytes_per_second"] * 1e12))

    def tokens(self, step: float) -> float:
        """Of the tokens before the first sound. step: milliseconds, floor of a decode step."""
        return FIRST_TOKENS * step


def estimator_weights() -> int:
    """Numbers in the flow's estimator."""
    shapes = json.loads(SHAPES.read_text())["flow.pt"]
    return sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("decoder.estimator"))
