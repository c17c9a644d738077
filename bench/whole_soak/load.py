"""Callers at once, each of whom makes one request after the other, of kinds chosen by chance."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from bench.whole_soak.over_grpc import GrpcCallers
from bench.whole_soak.over_http import HttpCallers
from bench.whole_soak.tally import Tally
from bench.whole_soak.up import Up

PAUSE_SECONDS = 0.5
"""Between two requests of a caller, at most, and after one that failed."""
Kinds = dict[str, tuple[float, Callable[[], Awaitable[str]]]]


async def load(up: Up, tally: Tally, callers: int, seconds: float, seed: int) -> None:
    """Until so many seconds have passed and every request is over; then all connections are
    closed.
    """
    rng = random.Random(seed)
    over_grpc, over_http = GrpcCallers(up, rng), HttpCallers(up, rng)
    kinds: Kinds = {**over_grpc.kinds(), **over_http.kinds()}
    weights = [weight for weight, _ in kinds.values()]
    ends = time.monotonic() + seconds

    async def caller() -> None:
        while time.monotonic() < ends:
            (kind,) = rng.choices(list(kinds), weights)
            as_it_should = await tally.count(kind, kinds[kind][1])
            await asyncio.sleep(rng.uniform(0.0, PAUSE_SECONDS) if as_it_should else PAUSE_SECONDS)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(caller())
    finally:
        await over_grpc.close()
        await over_http.close()
