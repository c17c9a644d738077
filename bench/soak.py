"""Does memory stay flat? `python -m bench.soak`: many requests with random hang-ups, resident
memory of every process after each stretch.

The slope is a least-squares line over all samples after warm-up. Flat means at most 1 MB per 100
requests for each process.
"""

import asyncio
import json
import random
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.load.command_line import command
from bench.load.flat_memory import Memory, look
from bench.load.stack import ALL_ADMITTED
from cosyserve.client import AsyncClient
from cosyserve.errors import InternalFault
from cosyserve.host.supervision.supervisor import local_deployment

TEXTS = ("Short.", "A few words more.", "This one has a comma, and then goes on.", "Numbers: 1, 2 and 30.")


@dataclass(frozen=True)
class SoakResult:
    """What a run saw. memory: its slopes for 100 requests."""

    requests: int
    heard_out: int
    hung_up: int
    seconds: float
    memory: Memory


class Callers:
    """Half of them hang up at a random moment. The others compare what they hear with the answer to
    an equal request before it.
    """

    def __init__(self, client: AsyncClient, seed: int) -> None:
        self._client, self._rng = client, random.Random(seed)
        self._heard: dict[tuple[str, str, int], bytes] = {}
        self.heard_out = self.hung_up = 0

    async def run(self, clients: int, first: int, count: int) -> None:
        """Requests `first` to `first + count`, `clients` at a time."""
        numbers = iter(range(first, first + count))

        async def worker() -> None:
            for number in numbers:
                await self._ask(number)

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(worker())

    async def _ask(self, number: int) -> None:
        rng, voice = self._rng, ("af_heart", "am_michael")[number % 2]
        text, seed = rng.choice(TEXTS), rng.randrange(4)
        patience = rng.uniform(0.0, 0.6) if rng.random() < 0.5 else None
        try:
            async with asyncio.timeout(patience), self._client.synthesize(text, seed=seed, voice=voice) as speech:
                audio = await speech.read()
        except TimeoutError:
            self.hung_up += 1
            return
        self.heard_out += 1
        if audio != self._heard.setdefault((voice, text, seed), audio):
            raise InternalFault(f"request {number} was not heard as an equal one before it")


async def soak(model: Path, requests: int, warm_up: int, clients: int, stretch: int, seed: int) -> SoakResult:
    """Run `warm_up` and then `requests` requests, `clients` at a time."""
    samples: dict[str, list[tuple[float, float]]] = {}
    async with local_deployment(model, environ=ALL_ADMITTED) as stack, AsyncClient(stack.address) as client:
        callers = Callers(client, seed)
        await callers.run(clients, 0, warm_up)
        began = time.monotonic()
        for done in range(0, requests, stretch):
            look(stack, done, samples)
            await callers.run(clients, warm_up + done, min(stretch, requests - done))
            print(f"\r{done + stretch} of {requests} requests", end="", file=sys.stderr, flush=True)
        look(stack, requests, samples)
        print(file=sys.stderr)
        seconds = time.monotonic() - began
    return SoakResult(requests, callers.heard_out, callers.hung_up, seconds, Memory.of(samples, 100))


def main() -> int:
    parser = command("bench.soak", __doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--warm-up", type=int, default=200)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--stretch", type=int, default=50, help="requests between two looks at the memory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = vars(parser.parse_args())
    as_json = options.pop("json")
    result = asyncio.run(soak(**options))
    if as_json:
        print(json.dumps({**asdict(result), "flat": result.memory.flat}))
    else:
        print(
            f"{result.requests} requests in {result.seconds:.0f} s; heard out (warm-up included) "
            f"{result.heard_out}, hung up {result.hung_up}"
        )
        print(result.memory.text("100 requests"))
    return 0 if result.memory.flat else 1


if __name__ == "__main__":
    sys.exit(main())
