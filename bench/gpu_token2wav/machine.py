"""Parts about the machine, and the readable path on it."""

import statistics
import time
from pathlib import Path
from typing import Any

import torch

from bench.gpu_token2wav.published import DEVICE, PUBLISHED, Someone, graphed, random_flow, random_vocoder, timed
from services.token2wav.flow.flow import Flow
from services.token2wav.vocoder.vocoder import Vocoder


def ceilings(out: Path) -> dict[str, Any]:
    """Copy bandwidth and a large bfloat16 product."""
    a = torch.empty(4 << 30, dtype=torch.uint8, device=DEVICE).random_()
    b = torch.empty_like(a)
    copy = 2 * a.numel() / timed(lambda: b.copy_(a), 10) / 1e9
    x, y = (torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    rate = 2 * 8192**3 / timed(lambda: x @ y, 10) / 1e9
    empty = torch.zeros(1, device=DEVICE)

    def many() -> None:
        for _ in range(1000):
            empty.add_(1)

    launch = 1000 * timed(graphed(many), 5) / 1000
    print(f"copy {copy:.2f} TB/s, product {rate:.0f} TFLOP/s, smallest kernel in a graph {launch:.2f} us")
    return {"copy_terabytes_per_second": copy / 1, "product_teraflops": rate, "kernel_us": launch}


def readable(out: Path) -> dict[str, Any]:
    """The slow path on the same GPU: readable flow and vocoder, eager, float32."""

    flow = Flow(PUBLISHED, random_flow(PUBLISHED, DEVICE), DEVICE)
    rows: dict[str, Any] = {}
    someone = Someone(flow, 87, 41, 2)
    state = flow.start(someone.voice)
    for at in range(4):
        if at == 3:
            kept = flow.fork(state)
        unit = someone.unit(at, list(range(at + 1)))
        flow.blocks([state], [unit.tokens], [unit.ahead])

    def warm() -> None:
        flow.blocks([flow.fork(kept)], [unit.tokens], [unit.ahead])

    rows["flow block behind 87 tokens"] = timed(warm, 5, 1)
    vocoder = Vocoder(*random_vocoder(), DEVICE)
    mel = torch.randn(80, 400, device=DEVICE)
    for frames in (10, 50):
        state_v = vocoder.start(0, 0, 26, frames)
        spans = []
        for begin in range(0, 350, 50):
            torch.cuda.synchronize()
            began = time.perf_counter()
            vocoder.step([state_v], [mel[:, begin : begin + 50]], [False])
            torch.cuda.synchronize()
            spans.append(1000 * (time.perf_counter() - began))
        rows[f"vocoder chunk of 50 frames, windows of {frames}"] = statistics.median(spans[3:])
    for name, spent in rows.items():
        print(f"readable path, {name}: {spent:.2f} ms", flush=True)
    return rows
