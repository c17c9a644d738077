"""How long work takes on a GPU: events around it."""

import statistics
from collections.abc import Callable

import torch


def timed(work: Callable[[], object], repeats: int = 20, warm: int = 3) -> float:
    """Milliseconds on the device, the median. warm: runs before that do not count."""
    for _ in range(warm):
        work()
    spans = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
        end.synchronize()
        spans.append(float(begin.elapsed_time(end)))
    return statistics.median(spans)
