"""The part about the vocoder: right against the readable one's whole sentence, and what a window
costs by batch.
"""

import time
from pathlib import Path
from typing import Any

import torch
from services.token2wav.gpu.windowed_vocoder.windows import Render
from torch import Tensor

from bench.gpu.timing import timed
from bench.gpu.token2wav.random_models import DEVICE, RUN, apart, random_vocoder
from bench.gpu.token2wav.vocoder_tuning import CompileShare
from services.token2wav.gpu.device.launcher import Launcher
from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder
from services.token2wav.vocoder.vocoder import Vocoder

BATCHES = (1, 2, 4, 8, 16, 32)
FRAMES, SEED = 237, 0x123456789AB
ARRIVALS = (26, 76, 126, 176, 226, FRAMES)
"""Frames that are there at each step: hops behind a prompt of 87 tokens, and the end."""


def vocoder(out: Path, precisions: tuple[str, ...] = ("float16", "tf32")) -> dict[str, Any]:
    """Windows against the readable vocoder's whole sentence, then milliseconds of a window by
    batch.
    """
    config, weights = random_vocoder()
    if RUN.compile_only:
        launch = CompileShare(RUN.shard[0], RUN.shard[1], RUN.tuned)
        windowed = WindowedVocoder(
            config, weights, DEVICE, slots=2, buckets=BATCHES, launch=launch, precision=precisions[0]
        )
        for batch in BATCHES:
            for frames in windowed.shapes:
                windowed.run([Render(1, 0, frames, None, 1, 0)] * batch, frames)
        torch.cuda.synchronize()
        return {}
    plain = Vocoder(config, weights, DEVICE)
    mel = torch.randn(80, FRAMES, generator=torch.Generator().manual_seed(5)).to(DEVICE)
    wanted = plain.offline(mel, SEED, 3)
    rows = RUN.results
    for precision, parallel in [(precision, parallel) for precision in precisions for parallel in (False, True)]:
        began = time.perf_counter()
        print("excitation next to the levels before" if parallel else "one after the other", flush=True)
        windowed = WindowedVocoder(
            config, weights, DEVICE, slots=40, launch=Launcher(True, RUN.tuned), precision=precision,
            side_streams=parallel
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
            for batch in BATCHES:
                windows = [Render(at + 1, 0, frames, None, at, 0) for at in range(batch)]
                windowed.run(windows, frames)
                rows[f"{kind} {frames} {batch}"] = spent = timed(windowed._graphs[frames, batch].replay, 20)
                began = time.perf_counter()
                for _ in range(20):
                    windowed.run(windows, frames)
                host = 1000 * (time.perf_counter() - began) / 20
                torch.cuda.synchronize()
                print(
                    f"vocoder {precision} {batch:2d} windows of {frames} frames: {spent:.3f} ms, host {host:.3f} ms",
                    flush=True,
                )
        del windowed
    _profiled(config, weights, precisions[0])
    return rows


def _streamed(windowed: WindowedVocoder, mel: Tensor) -> Tensor:
    pieces, first, received = [], 0, 0
    windowed.forget(7)
    for have in ARRIVALS:
        windowed.write([7], [received], [mel.T[received:have]])
        received, end = have, FRAMES if have == FRAMES else None
        while count := min(50, (FRAMES if end else have - windowed.hold_back_frames) - first):
            pieces.append(
                windowed.run([Render(7, first, count, end, SEED, 3)], 10 if count <= 10 else 50)[
                    0, : 480 * count
                ].clone()
            )
            first += count
    return torch.cat(pieces)


def _profiled(config: Any, weights: dict[str, Tensor], precision: str) -> None:
    windowed = WindowedVocoder(
        config, weights, DEVICE, slots=40, buckets=BATCHES, launch=Launcher(True, RUN.tuned), precision=precision
    )
    for batch in (1, 32):
        windows = [Render(at + 1, 0, 30, None, at, 0) for at in range(batch)]
        windowed.run(windows)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
            windowed.run(windows)
            torch.cuda.synchronize()
        events = sorted(recorded.key_averages(), key=lambda each: -each.self_device_time_total)
        total = sum(event.self_device_time_total for event in events)
        print(
            f"{batch} windows: {total:.0f} us of kernels in {sum(event.count for event in events)} launches", flush=True
        )
        for event in events[:16]:
            print(f"   {event.key[:90]:90s} {event.self_device_time_total:8.0f} us in {event.count}", flush=True)
        spans = [event for event in recorded.events() if "windowed_convolution" in event.name]
        print("   convolutions in turn:", " ".join(f"{event.device_time_total:.0f}" for event in spans), flush=True)
