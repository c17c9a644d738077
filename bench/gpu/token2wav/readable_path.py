"""The part about the readable path."""

import statistics
import time
from pathlib import Path
from typing import Any

import torch

from bench.gpu.timing import timed
from bench.gpu.token2wav.random_models import DEVICE, PUBLISHED, RUN, RandomVoice, random_flow, random_vocoder
from services.token2wav.flow.flow import Flow
from services.token2wav.vocoder.vocoder import Vocoder


def readable(out: Path) -> dict[str, Any]:
    """The slow path on the same GPU: readable flow and vocoder, eager, float32."""

    flow = Flow(PUBLISHED, random_flow(PUBLISHED, DEVICE), DEVICE)
    rows = RUN.results
    someone = RandomVoice(flow, 87, 41, 2)
    state = flow.start(someone.voice)
    for at in range(4):
        if at == 3:
            prompt_state = flow.fork(state)
        unit = someone.unit(at, list(range(at + 1)))
        flow.blocks([state], [unit.tokens], [unit.ahead])

    def warm() -> None:
        flow.blocks([flow.fork(prompt_state)], [unit.tokens], [unit.ahead])

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
