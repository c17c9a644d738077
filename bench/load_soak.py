"""Does memory stay flat under load, for minutes? `python -m bench.load_soak [--minutes 8]
[--warm-up REQUESTS] [--streams 32] [--seeds N] [--device cuda] [--json FILE]`

`--streams` callers, each asking again as soon as its answer is complete; one in three hangs up at a
random moment of its answer. Resident memory of every process of the services and GPU memory, every
few seconds; slopes are least-squares lines over all samples after the warm-up, by minutes and by
requests. An error that is not a hang-up is a failure, and so is growth of more than 1 MB in 100
requests. With --seeds requests come again, and one that is heard otherwise than before is a
failure.
"""

import argparse
import asyncio
import contextlib
import math
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from bench.load.command_line import add_stack_options, command, user_errors
from bench.load.flat_memory import look, slopes, verdict
from bench.load.stack import TEXTS, gpu_megabytes, room_for
from bench.parts.part import ResultsFile
from bench.parts.progress import bar
from cosyserve.client import AsyncClient
from cosyserve.errors import CosyserveError
from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment
from cosyserve.load.measurement import closed_loop

HANG_UPS = 1 / 3
BACK_OFF_SECONDS = 0.2
"""Of a caller that met an error: services that are gone refuse at once."""
LOOK_SECONDS = 2.0
WARM_UP_SHARE = 0.125
"""Of the time, before the samples that count, at least."""
GPU = "GPU"


@dataclass
class Tally:
    heard_out: int = 0
    hung_up: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    typical: float = 1.0
    """Seconds of an answer, the last ones counting most: a caller hangs up within this time."""
    heard: dict[tuple[str, int], bytes] = field(default_factory=dict)
    """By text and seed, of requests that come again."""

    @property
    def requests(self) -> int:
        """That are over, however they ended."""
        return self.heard_out + self.hung_up + self.errors.total()


@dataclass
class Looks:
    """samples: by second. requests: how many were over at each look, by its second."""

    samples: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    requests: dict[float, int] = field(default_factory=dict)

    def after(self, requests: int) -> float:
        """The second of the first look by which so many were over; infinite before."""
        return min((at for at, over in self.requests.items() if over >= requests), default=math.inf)

    def slopes(self, after: float) -> dict[str, float]:
        """Megabytes a minute by process, from second `after` on."""
        return slopes(self._from(after), 60)

    def by_requests(self, after: float) -> dict[str, float]:
        """Megabytes in 100 requests by process, from second `after` on; nothing where there were
        fewer than a hundred.
        """
        return slopes(
            {name: [(self.requests[at], held) for at, held in line] for name, line in self._from(after).items()},
            per=100,
            least=100,
        )

    def _from(self, after: float) -> dict[str, list[tuple[float, float]]]:
        return {name: [point for point in line if point[0] >= after] for name, line in self.samples.items()}


async def ask(client: AsyncClient, number: int, seeds: int, rng: random.Random, tally: Tally) -> None:
    """seeds: of each text; 0: every request has another one."""
    patience, began = rng.uniform(0.0, tally.typical) if rng.random() < HANG_UPS else None, time.monotonic()
    text, seed = TEXTS[number % len(TEXTS)], number // len(TEXTS) % seeds if seeds else number
    try:
        async with asyncio.timeout(patience), client.synthesize(text, seed=seed) as speech:
            audio = await speech.read()
        if seeds and audio != tally.heard.setdefault((text, seed), audio):
            tally.errors[f"seed {seed} of {text!r} was heard otherwise before"] += 1
            return
        tally.heard_out += 1
        tally.typical += 0.1 * (time.monotonic() - began - tally.typical)
    except TimeoutError:
        tally.hung_up += 1
    except CosyserveError as error:
        tally.errors[f"{type(error).__name__}: {error.message}"] += 1
        await asyncio.sleep(BACK_OFF_SECONDS)


async def soak(options: argparse.Namespace, results: ResultsFile) -> None:
    """Samples and counts are in `results` after each look."""
    looks, tally, rng, seconds = Looks(), Tally(), random.Random(options.seed), 60 * options.minutes
    environ = room_for(2 * options.streams) | dict(options.set)
    async with contextlib.AsyncExitStack() as exits:
        stack = await exits.enter_async_context(local_deployment(options.model, device=options.device, environ=environ))
        clients = [await exits.enter_async_context(AsyncClient(stack.address)) for _ in range(options.connections)]
        began = time.monotonic()
        watching = asyncio.create_task(_watch(stack, began, seconds, looks, tally, results, options.warm_up))
        try:
            await closed_loop(
                lambda number: ask(clients[number % len(clients)], number, options.seeds, rng, tally),
                options.streams,
                seconds,
            )
        finally:
            watching.cancel()
        # Whatever ended the watching early is raised: a slope of a part of the time would say
        # little.
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        _note(results, looks, tally, time.monotonic() - began, options.warm_up)
        print(file=sys.stderr)


async def _watch(
    stack: LocalDeployment,
    began: float,
    seconds: float,
    looks: Looks,
    tally: Tally,
    results: ResultsFile,
    warm_up: int,
) -> None:
    while True:
        passed = time.monotonic() - began
        look(stack, passed, looks.samples)
        looks.requests[passed] = tally.requests
        used = await asyncio.to_thread(gpu_megabytes)
        if used is not None:
            looks.samples.setdefault(GPU, []).append((passed, used))
        _note(results, looks, tally, passed, warm_up)
        done = f"{tally.heard_out} heard out, {tally.hung_up} hung up, {tally.errors.total()} errors"
        print(
            f"\r[{bar(passed / seconds)}] {passed:.0f} of {seconds:.0f} s, {done} ", end="", file=sys.stderr, flush=True
        )
        await asyncio.sleep(LOOK_SECONDS)


def _note(results: ResultsFile, looks: Looks, tally: Tally, passed: float, warm_up: int) -> None:
    after = max(WARM_UP_SHARE * passed, looks.after(warm_up))
    # Written with the last of them, all at once.
    results.update(
        seconds=passed,
        heard_out=tally.heard_out,
        hung_up=tally.hung_up,
        failed=tally.errors.total(),
        errors=dict(tally.errors),
    )
    results.update(slopes=looks.slopes(after), by_requests=looks.by_requests(after))
    results["samples"] = looks.samples


def main(arguments: list[str] | None = None) -> int:
    parser = command("bench.load_soak", __doc__)
    add_stack_options(parser)
    parser.add_argument("--streams", type=int, default=32, help="callers at once (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=8.0, help="(default: %(default)g)")
    parser.add_argument(
        "--warm-up",
        type=int,
        default=0,
        metavar="REQUESTS",
        help="that are over before the samples that count, besides an eighth of the time (default: %(default)s)",
    )
    parser.add_argument(
        "--connections", type=int, default=4, help="connections that share the requests (default: %(default)s)"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=0,
        metavar="N",
        help="of each text: requests come again (default: all differ)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of all chance (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where samples and counts go")
    options = parser.parse_args(arguments)
    results = ResultsFile(options.json)
    results.clear()
    with user_errors("bench.load_soak"):
        asyncio.run(soak(options, results))
    print(
        f"{results['seconds']:.0f} s: {results['heard_out']} heard out, {results['hung_up']} hung up, "
        f"{results['failed']} errors"
    )
    for name, slope in results["slopes"].items():
        held = [megabytes for _, megabytes in results["samples"][name]]
        hundred = f", {results['by_requests'][name]:+.4f} in 100 requests" if name in results["by_requests"] else ""
        print(
            f"{name:16} {held[0]:9.1f} MB -> {held[-1]:9.1f} MB, at most {max(held):9.1f}   {slope:+.3f} MB a "
            f"minute{hundred}"
        )
    wrong = verdict(results)
    for line in wrong:
        print(line, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
