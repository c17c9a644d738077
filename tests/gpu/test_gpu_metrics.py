"""The metrics of a GPU are what torch finds out about it."""

import time

import pytest
import torch

from cosyserve.metrics import gpus

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
MIB = 1 << 20


def test_memory_and_use_are_those_of_the_device() -> None:
    read = gpus.watch()
    assert read is not None
    state = next(iter(read.states().values()))
    _, total = torch.cuda.mem_get_info(0)
    # The driver keeps some for itself.
    assert total <= state.bytes <= 1.1 * total
    held = torch.zeros(512 * MIB, dtype=torch.uint8, device="cuda")
    after = next(iter(read.states().values()))
    assert after.used_bytes - state.used_bytes >= 400 * MIB
    del held
    if state.utilisation is None:
        return
    matrix, until, most = torch.randn(4096, 4096, device="cuda"), time.monotonic() + 3, 0.0
    while time.monotonic() < until:
        matrix = torch.tanh(matrix @ matrix)
        torch.cuda.synchronize()
        most = max(most, next(iter(read.states().values())).utilisation or 0.0)
    assert 0.3 < most <= 1.0
