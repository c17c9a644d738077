"""When listeners come: as soon as the answer before is complete or heard out, or by chance."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

Ask = Callable[[int], Coroutine[Any, Any, None]]


async def closed_loop(ask: Ask, streams: int, seconds: float, first: int = 0, spread: float = 0.0) -> int:
    """`streams` askers for `seconds`, each asking again as soon as its answer is complete. Returns
    the number of requests.

    Those under way at the end are waited for. ask: gets the number of the request, from `first`.
    spread: seconds before `seconds` within which the askers begin, one after the other.
    """
    end, number = time.monotonic() + spread + seconds, first

    async def asker(place: int) -> None:
        nonlocal number
        await asyncio.sleep(spread * place / streams)
        while time.monotonic() < end:
            number += 1
            await ask(number - 1)

    async with asyncio.TaskGroup() as group:
        for place in range(streams):
            group.create_task(asker(place))
    return number - first


async def poisson(ask: Ask, per_second: float, seconds: float, seed: int, first: int = 0, least: int = 1) -> int:
    """Requests that know nothing of each other, `per_second` on average, for `seconds` and until
    there are `least`. Returns their number; all are waited for."""
    rng = random.Random(seed)  # noqa: S311 - arrivals that can be repeated, no secret
    number, begin, at = first, time.monotonic(), 0.0
    async with asyncio.TaskGroup() as group:
        while True:
            at += rng.expovariate(per_second)
            # A moment that is over already is not skipped: a late request meets the work of the
            # others, as it would have.
            await asyncio.sleep(max(0.0, begin + at - time.monotonic()))
            if at >= seconds and number - first >= least:
                return number - first
            group.create_task(ask(number))
            number += 1
