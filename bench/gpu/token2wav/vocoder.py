"""The part about the vocoder: right against the readable one's whole sentence, and what a window
costs by batch.
"""

import time
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.gpu.timing import timed
from bench.gpu.token2wav.random_models import DEVICE, RUN, apart, random_vocoder, readable_vocoder
from services.token2wav.gpu.device.launcher import Grid, Launcher
from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder
from services.token2wav.gpu.windowed_vocoder.windows import Render

BATCHES = (1, 2, 4, 8, 16, 32)
STREAMS = (*BATCHES, 64)
"""More than a batch holds take several."""
FRAMES, SEED = 237, 0x123456789AB
ARRIVALS = (26, 76, 126, 176, 226, FRAMES)
"""Frames that are there at each step: hops behind a prompt of 87 tokens, and the end."""


class CompileShare(Launcher):
    """Launches one in `count` kinds of kernels, so that several processes compile them all."""

    def __init__(self, mine: int, count: int) -> None:
        super().__init__(True)
        object.__setattr__(self, "_mine", (mine, count, {}))

    def __call__(self, kernel: Any, grid: Grid, *arguments: Any, **constants: Any) -> None:
        mine, count, seen = self._mine  # type: ignore[attr-defined]
        at = seen.setdefault((kernel.fn.__name__, *sorted(constants.items())), len(seen))
        if at % count == mine:
            super().__call__(kernel, grid, *arguments, **constants)


def vocoder(precision: str) -> None:
    """Windows against the readable vocoder's whole sentence, then milliseconds of a window by
    batch.
    """
    network, config, weights = random_vocoder()
    if RUN.compile_only:
        launch = CompileShare(RUN.shard[0], RUN.shard[1])
        windowed = WindowedVocoder(
            config, weights, DEVICE, slots=2, buckets=BATCHES, launch=launch, precision=precision, network=network
        )
        for batch in BATCHES:
            for frames in windowed.shapes:
                windowed.run([Render(1, 0, frames, None, 1, 0)] * batch, frames)
        torch.cuda.synchronize()
        return
    plain = readable_vocoder(config, weights)
    mel = torch.randn(80, FRAMES, generator=torch.Generator().manual_seed(5)).to(DEVICE)
    wanted = plain.offline(mel, SEED, 3)
    rows = RUN.results
    for parallel in (False, True):
        began = time.perf_counter()
        print("excitation next to the levels before" if parallel else "one after the other", flush=True)
        windowed = WindowedVocoder(
            config, weights, DEVICE, slots=40, launch=Launcher(True), precision=precision, side_streams=parallel,
            network=network,
        )  # fmt: skip
        windowed.capture()
        seconds = time.perf_counter() - began
        sound = _streamed(windowed, mel)
        kind = precision if parallel else f"{precision}, one after the other"
        rows[f"{kind} error"] = apart(sound, wanted)
        peak, loudest = float((sound - wanted).abs().max()), float(wanted.abs().max())
        error = rows[f"{kind} error"][0]
        print(
            f"vocoder {precision}: relative {error:.2e}, largest {peak:.2e} of {loudest:.2f}, captured in "
            f"{seconds:.1f} s",
            flush=True,
        )
        for frames in windowed.shapes:
            for batch in STREAMS:
                windows = [Render(at + 1, 0, frames, None, at, 0) for at in range(min(batch, BATCHES[-1]))]
                windowed.run(windows, frames)
                graph, times = windowed._graphs[frames, len(windows)], batch // len(windows)
                rows[f"{kind} {frames} {batch}"] = spent = timed(partial(_replay, graph, times), 20)
                began = time.perf_counter()
                for _ in range(20 * times):
                    windowed.run(windows, frames)
                host = 1000 * (time.perf_counter() - began) / 20
                torch.cuda.synchronize()
                print(
                    f"vocoder {precision} {batch:2d} windows of {frames} frames: {spent:.3f} ms, host {host:.3f} ms",
                    flush=True,
                )
        del windowed


def _replay(graph: torch.cuda.CUDAGraph, times: int) -> None:
    for _ in range(times):
        graph.replay()


def _streamed(windowed: WindowedVocoder, mel: Tensor) -> Tensor:
    pieces, first, received = [], 0, 0
    windowed.forget(7)
    for have in ARRIVALS:
        windowed.write([7], [received], [mel.T[received:have]])
        received, end = have, FRAMES if have == FRAMES else None
        while count := min(50, (FRAMES if end else have - windowed.hold_back_frames) - first):
            window = Render(7, first, count, end, SEED, 3)
            pieces.append(
                windowed.run([window], 10 if count <= 10 else 50)[0, window.determined(windowed.late_samples)].clone()
            )
            first += count
    return torch.cat(pieces)
