"""Does memory stay flat under load, for minutes? `python -m bench.load_soak [--minutes 8] [--streams 32] [--device cuda] [--json FILE]`

So many askers, each asking anew as soon as its answer is complete; one in three hangs up at a random moment of its answer. Resident memory
of every process of the services and GPU memory, every few seconds; slopes are least-squares lines over all samples after the warm-up. An
error that is not a hang-up is a failure, and so is growth of more than 1 MB a minute.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.arrivals import closed_loop
from bench.parts.kept import Kept
from bench.parts.progress import bar
from bench.serving import TEXTS, gpu_megabytes, room_for, setting
from bench.soak import sample
from cosyserve.client import Client
from cosyserve.errors import CosyserveError
from cosyserve.supervision.stack import Stack, StackFailed, running_stack

FLAT_MEGABYTES_A_MINUTE = 1.0
HANG_UPS = 1 / 3
LOOK_SECONDS = 2.0
WARM_UP_SHARE = 0.125
"""Of the time, before the samples that count."""
GPU = "GPU"


@dataclass
class Tally:
    heard_out: int = 0
    hung_up: int = 0
    errors: list[str] = field(default_factory=list)
    typical: float = 1.0
    """Seconds of an answer, the last ones counting most: within so many a caller hangs up."""


def slopes(samples: Mapping[str, Sequence[tuple[float, float]]], after: float) -> dict[str, float]:
    """Megabytes a minute by process, of samples (second, megabytes) from second `after` on; a process with fewer than three has none."""
    found = {}
    for name, points in samples.items():
        counted = [point for point in points if point[0] >= after]
        if len(counted) >= 3:
            seconds, held = zip(*counted, strict=True)
            found[name] = 60 * float(np.polyfit(seconds, held, 1)[0])
    return found


def verdict(kept: Mapping[str, Any]) -> list[str]:
    """What is wrong with a run; nothing if it holds."""
    wrong = [f"{name} grows by {slope:.2f} MB a minute" for name, slope in kept["slopes"].items() if slope > FLAT_MEGABYTES_A_MINUTE]
    return wrong + [f"failed: {message}" for message in sorted(set(kept["errors"]))[:3]]


async def ask(client: Client, number: int, rng: random.Random, tally: Tally) -> None:
    patience, began = rng.uniform(0.0, tally.typical) if rng.random() < HANG_UPS else None, time.monotonic()
    try:
        async with asyncio.timeout(patience), client.synthesize(TEXTS[number % len(TEXTS)], seed=number) as speech:
            await speech.read()
        tally.heard_out += 1
        tally.typical += 0.1 * (time.monotonic() - began - tally.typical)
    except TimeoutError:
        tally.hung_up += 1
    except CosyserveError as error:
        tally.errors.append(f"{type(error).__name__}: {error.message}")


async def soak(told: argparse.Namespace, kept: Kept) -> None:
    """Samples and counts are in `kept` after each look."""
    samples: dict[str, list[tuple[float, float]]] = {}
    tally, rng, seconds = Tally(), random.Random(told.seed), 60 * told.minutes
    environ = room_for(2 * told.streams) | dict(told.set)
    async with running_stack(told.model, device=told.device, environ=environ) as stack:
        clients = [Client(stack.address) for _ in range(told.connections)]
        began = time.monotonic()
        watching = asyncio.create_task(_watch(stack, began, seconds, samples, tally, kept))
        try:
            await closed_loop(lambda number: ask(clients[number % len(clients)], number, rng, tally), told.streams, seconds)
        finally:
            watching.cancel()
            for client in clients:
                await client.close()
        # Whatever ended the watching early is told: a slope of a part of the time would say little.
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        _note(kept, samples, tally, time.monotonic() - began)
        print(file=sys.stderr)


async def _watch(
    stack: Stack, began: float, seconds: float, samples: dict[str, list[tuple[float, float]]], tally: Tally, kept: Kept
) -> None:
    while True:
        passed = time.monotonic() - began
        sample(stack, passed, samples)
        used = await asyncio.to_thread(gpu_megabytes)
        if used is not None:
            samples.setdefault(GPU, []).append((passed, used))
        _note(kept, samples, tally, passed)
        done = f"{tally.heard_out} heard out, {tally.hung_up} hung up, {len(tally.errors)} errors"
        print(f"\r[{bar(passed / seconds)}] {passed:.0f} of {seconds:.0f} s, {done} ", end="", file=sys.stderr, flush=True)
        await asyncio.sleep(LOOK_SECONDS)


def _note(kept: Kept, samples: Mapping[str, Sequence[tuple[float, float]]], tally: Tally, passed: float) -> None:
    kept.update(seconds=passed, heard_out=tally.heard_out, hung_up=tally.hung_up, errors=tally.errors[-20:], failed=len(tally.errors))
    kept["slopes"] = slopes(samples, WARM_UP_SHARE * passed)
    kept["samples"] = dict(samples)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.load_soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=Path("models/demo"), help="model directory (default: %(default)s)")
    parser.add_argument("--device", help="device of the engines (default: the services')")
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="NAME=VALUE", help="a setting of a service; repeatable")
    parser.add_argument("--streams", type=int, default=32, help="askers at once (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=8.0, help="(default: %(default)g)")
    parser.add_argument("--connections", type=int, default=4, help="connections that share the requests (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where samples and counts go")
    told = parser.parse_args(arguments)
    kept = Kept(told.json)
    kept.clear()
    try:
        asyncio.run(soak(told, kept))
    except (StackFailed, CosyserveError) as error:
        print(f"bench.load_soak: {error}", file=sys.stderr)
        return 1
    print(f"{kept['seconds']:.0f} s: {kept['heard_out']} heard out, {kept['hung_up']} hung up, {kept['failed']} errors")
    for name, slope in kept["slopes"].items():
        held = [megabytes for _, megabytes in kept["samples"][name]]
        print(f"{name:16} {held[0]:9.1f} MB -> {held[-1]:9.1f} MB, at most {max(held):9.1f}   {slope:+.3f} MB a minute")
    for wrong in verdict(kept):
        print(wrong, file=sys.stderr)
    return int(bool(verdict(kept)))


if __name__ == "__main__":
    sys.exit(main())
