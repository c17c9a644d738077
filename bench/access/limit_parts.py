"""How much is served of a limit that N orchestrators share? `python -m bench.access.limit_parts`

A simulation on a clock of its own. One key asks for twice its limit of 600 requests a minute, at
times by chance, for an hour. Each request goes to one of N orchestrators: in turn, by chance, by
chance with weights (the first one gets a share of all), or all of a minute to one, as when a client
keeps its connection. Printed is what was served, in percent of the limit.
"""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from bench.load.command_line import command
from bench.reports.tables import columns
from cosyserve.errors import LimitReached
from cosyserve.keys.key_record import KeyLimits
from services.orchestrator.access.budget import Budget

LIMIT, MINUTES, OVER = 600, 60, 2.0
Route = Callable[[random.Random, int, float], int]
"""Which of N orchestrators gets a request at this second."""


@dataclass(frozen=True)
class Served:
    """Percent of the limit."""

    routes: str
    orchestrators: int
    served: float


def even(counter: Iterator[int]) -> Route:
    return lambda draws, parts, now: next(counter) % parts


def by_chance(draws: random.Random, parts: int, now: float) -> int:
    return draws.randrange(parts)


def uneven(share: float) -> Route:
    """The first one gets `share` of all, the others the rest alike."""

    def route(draws: random.Random, parts: int, now: float) -> int:
        return 0 if parts == 1 or draws.random() < share else draws.randrange(1, parts)

    return route


def sticky(draws: random.Random, parts: int, now: float) -> int:
    return int(now // 60) % parts


def simulated(route: Route, parts: int) -> float:
    """The share of the limit that was served."""
    clock, draws = [0.0], random.Random(parts)
    limits = KeyLimits(requests_per_minute=LIMIT)
    budgets = [Budget("key", limits, lambda: parts, lambda: clock[0]) for _ in range(parts)]
    served = 0
    while clock[0] < 60 * MINUTES:
        clock[0] += draws.expovariate(OVER * LIMIT / 60)
        try:
            with budgets[route(draws, parts, clock[0])].use():
                served += 1
        except LimitReached:
            continue
    return served / (LIMIT * MINUTES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if more than the limit and one full bucket was served."""
    command("bench.access.limit_parts", __doc__).parse_args(arguments)
    rows = []
    for parts in (1, 2, 4, 8):
        routes: dict[str, Route] = {
            "in turn": even(iter(range(10**9))),
            "by chance": by_chance,
            "half to one": uneven(0.5),
            "90 % to one": uneven(0.9),
            "a minute to one": sticky,
        }
        rows += [Served(name, parts, round(100 * simulated(route, parts), 1)) for name, route in routes.items()]
    print("\n".join(columns([asdict(row) for row in rows])))
    return 0 if max(row.served for row in rows) <= 100 * (1 + 1 / MINUTES) + 0.1 else 1


if __name__ == "__main__":
    sys.exit(main())
