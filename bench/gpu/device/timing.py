"""How long work takes on a GPU, and what the GPU can reach: bytes and operations a second, and the
time of a kernel that does nothing.
"""

import statistics
from collections.abc import Callable

import torch


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
