"""The part about the vocoder: right against the readable one's whole sentence, and what a window costs by batch."""

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.gpu_token2wav.published import DEVICE, RUN, apart, random_vocoder, timed
from services.token2wav.gpu.launch import Launcher
from services.token2wav.gpu.vocoder import WindowedVocoder
from services.token2wav.gpu.windows import Render
from services.token2wav.vocoder.vocoder import Vocoder

FRAMES, SEED = 237, 0x123456789AB
ARRIVALS = (26, 76, 126, 176, 226, FRAMES)
"""Frames that are there at each step: hops behind a prompt of 87 tokens, and the end."""


def vocoder(out: Path, precisions: tuple[str, ...] = ("tf32x3", "tf32")) -> dict[str, Any]:
    """Windows against the readable vocoder's whole sentence, then milliseconds of a window by batch."""
    config, weights = random_vocoder()
    if RUN.compile_only:
        _compile(WindowedVocoder(config, weights, DEVICE, slots=2, buckets=(1,), launch=Launcher(True, RUN.tuned), precision=precisions[0]))
        return {}
    plain = Vocoder(config, weights, DEVICE)
    mel = torch.randn(80, FRAMES, generator=torch.Generator().manual_seed(5)).to(DEVICE)
    wanted = plain.offline(mel, SEED, 3)
    rows: dict[str, Any] = {}
    for precision in precisions:
        began = time.perf_counter()
        made = WindowedVocoder(config, weights, DEVICE, slots=40, launch=Launcher(True, RUN.tuned), precision=precision)
        made.capture()
        seconds = time.perf_counter() - began
        sound = _streamed(made, mel)
        rows[f"{precision} error"] = apart(sound, wanted)
        peak, loudest = float((sound - wanted).abs().max()), float(wanted.abs().max())
        error = rows[f"{precision} error"][0]
        print(f"vocoder {precision}: relative {error:.2e}, largest {peak:.2e} of {loudest:.2f}, captured in {seconds:.1f} s", flush=True)
        for batch in (1, 2, 4, 8, 16, 32):
            made.run([Render(at + 1, 0, 30, None, at, 0) for at in range(batch)])
            rows[f"{precision} {batch}"] = spent = timed(made._graphs[batch].replay, 20)
            print(f"vocoder {precision} batch {batch:2d}: {spent:.3f} ms a window of 50 frames", flush=True)
    _profiled(config, weights, precisions[0])
    return rows


def _streamed(made: WindowedVocoder, mel: Tensor) -> Tensor:
    pieces, first, received = [], 0, 0
    made.forget(7)
    for have in ARRIVALS:
        made.write([7], [received], [mel.T[received:have]])
        received, end = have, FRAMES if have == FRAMES else None
        while count := min(50, (FRAMES if end else have - made.hold_back_frames) - first):
            pieces.append(made.run([Render(7, first, count, end, SEED, 3)])[0, : 480 * count].clone())
            first += count
    return torch.cat(pieces)


def _compile(made: WindowedVocoder) -> None:
    levels = made._network._levels
    for at in RUN.shard or range(len(levels)):
        if at > 0:  # a level by itself: what it is given has the right shape and says nothing
            before = levels[at - 1]
            first = end = torch.zeros(32, dtype=torch.int32, device=DEVICE)
            columns = before._merged.stop - before._merged.start
            levels[at](before._sound.raw, columns, before._merged.start, before._variants, made._spectrum, first, end, 1)
    if not RUN.shard or 0 in RUN.shard:
        del levels[1:]
        made.run([Render(1, 0, 30, None, 1, 0)])
    torch.cuda.synchronize()


def _profiled(config: Any, weights: dict[str, Tensor], precision: str) -> None:
    made = WindowedVocoder(config, weights, DEVICE, slots=40, buckets=(1,), launch=Launcher(True, RUN.tuned), precision=precision)
    made.run([Render(1, 0, 30, None, 1, 0)])
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
        made.run([Render(1, 0, 30, None, 1, 0)])
        torch.cuda.synchronize()
    for event in sorted(recorded.key_averages(), key=lambda each: -each.self_device_time_total)[:7]:
        print(f"   {event.key[:60]:60s} {event.self_device_time_total:8.0f} us in {event.count}", flush=True)
