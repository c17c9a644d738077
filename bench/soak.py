"""Does memory stay flat? `python -m bench.soak`: many requests with random hang-ups, resident
memory of every process after each stretch.

The slope is a least-squares line over all samples after warm-up. Flat means at most 1 MB per 100
requests for each process.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.load.flat_memory import FLAT_MEGABYTES, sample, slopes_by_hundred
from bench.load.stack import ALL_ADMITTED
from cosyserve.client import AsyncClient
from cosyserve.errors import InternalFault
from cosyserve.host.supervision.supervisor import local_deployment

TEXTS = ("Short.", "A few words more.", "This one has a comma, and then goes on.", "Numbers: 1, 2 and 30.")


@dataclass(frozen=True)
class SoakResult:
    """What a run saw. slopes: MB per 100 requests by process; megabytes: resident at the first and
    the last sample after warm-up.
    """

    requests: int
    heard_out: int
    hung_up: int
    seconds: float
    slopes: dict[str, float]
    megabytes: dict[str, tuple[float, float]]

    @property
    def flat(self) -> bool:
        return all(slope <= FLAT_MEGABYTES for slope in self.slopes.values())


async def soak(model: Path, requests: int, warm_up: int, clients: int, stretch: int, seed: int) -> SoakResult:
    """Run `warm_up` and then `requests` requests, `clients` at a time, half of them hung up at a
    random moment.
    """
    rng = random.Random(seed)
    samples: dict[str, list[tuple[float, float]]] = {}
    heard: dict[tuple[str, int], bytes] = {}
    heard_out = hung_up = 0

    async def one(client: AsyncClient, number: int) -> None:
        nonlocal heard_out, hung_up
        text, voice_seed = rng.choice(TEXTS), rng.randrange(4)
        patience = rng.uniform(0.0, 0.6) if rng.random() < 0.5 else None
        speech = client.synthesize(text, seed=voice_seed, voice=("af_heart", "am_michael")[number % 2])
        try:
            async with asyncio.timeout(patience), speech:
                audio = await speech.read()
        except TimeoutError:
            hung_up += 1
            return
        heard_out += 1
        if audio != heard.setdefault((f"{number % 2} {text}", voice_seed), audio):
            raise InternalFault(f"request {number} was not heard as an equal one before it")

    async def run(client: AsyncClient, first: int, count: int) -> None:
        numbers = iter(range(first, first + count))

        async def worker() -> None:
            for number in numbers:
                await one(client, number)

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(worker())

    async with local_deployment(model, environ=ALL_ADMITTED) as stack, AsyncClient(stack.address) as client:
        await run(client, 0, warm_up)
        began = time.monotonic()
        for done in range(0, requests, stretch):
            sample(stack, done, samples)
            await run(client, warm_up + done, min(stretch, requests - done))
            print(f"\r{done + stretch} of {requests} requests", end="", file=sys.stderr, flush=True)
        sample(stack, requests, samples)
        print(file=sys.stderr)
        resident = {name: (points[0][1], points[-1][1]) for name, points in samples.items()}
        return SoakResult(requests, heard_out, hung_up, time.monotonic() - began, slopes_by_hundred(samples), resident)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("models/demo"))
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--warm-up", type=int, default=200)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--stretch", type=int, default=50, help="requests between two looks at the memory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = asyncio.run(
        soak(options.model, options.requests, options.warm_up, options.clients, options.stretch, options.seed)
    )
    if options.json:
        print(json.dumps({**asdict(result), "flat": result.flat}))
    else:
        print(
            f"{result.requests} requests in {result.seconds:.0f} s; heard out (warm-up included) "
            f"{result.heard_out}, hung up {result.hung_up}"
        )
        for name, slope in result.slopes.items():
            first, last = result.megabytes[name]
            print(f"{name:16} {first:7.1f} MB -> {last:7.1f} MB   {slope:+.3f} MB per 100 requests")
    return 0 if result.flat else 1


if __name__ == "__main__":
    sys.exit(main())
