"""What happens to the services while listeners come: each fault in turn, everything replaced, and
everything scaled up and down.
"""

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from bench.faults.cluster import SERVICES, Cluster
from bench.faults.listeners import Listener, Load
from bench.faults.strikes import STRIKES, Fault, Happens, all_faults, roll
from bench.faults.table import Row

BEFORE_SECONDS = 2.0
"""Of each row, before the fault."""
AFTER_SECONDS = 4.0
"""Of each row, behind the fault, at the least."""
_SCALED_TO = 3
NOTHING = Fault("", "none")
COUNTS: Mapping[str, Mapping[str, int]] = {
    "table": dict(zip(SERVICES, (2, 2, 3, 2, 1), strict=True)),
    "rolling": dict(zip(SERVICES, (2, 2, 3, 2, 1), strict=True)),
    "scaling": dict.fromkeys(SERVICES, 1),
}
"""Replicas of each scenario at its start."""


@dataclass
class Course:
    """The rows of a run as they happen. report: gets a line for each."""

    cluster: Cluster
    load: Load
    report: Callable[[str], None]
    _faults: list[Fault] = field(default_factory=list)
    _in_flight: list[int] = field(default_factory=list)
    _seconds: list[float] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def row(self, fault: Fault) -> AsyncIterator[Happens]:
        """What the block does is the next row; it calls what it is given at the moment of a
        fault."""
        clock = asyncio.get_running_loop()
        begin = clock.time()
        self.load.row = len(self._faults)
        self._faults.append(fault)
        self._in_flight.append(0)

        def happens() -> None:
            self._in_flight[-1] = max(self._in_flight[-1], self.load.fault())

        yield happens
        self._seconds.append(clock.time() - begin)
        self.cluster.require_alive()
        row = Row.of(fault, self._ended(len(self._faults) - 1), self._in_flight[-1], self._seconds[-1])
        self.report("  ".join([*row.cells(), *row.messages]))

    def rows(self) -> list[Row]:
        """All of them, once every listener has ended."""
        return [
            Row.of(fault, self._ended(number), self._in_flight[number], self._seconds[number])
            for number, fault in enumerate(self._faults)
        ]

    def _ended(self, number: int) -> list[Listener]:
        return [one for one in self.load.all if one.row == number and one not in self.load.under_way]


async def table(course: Course, options: argparse.Namespace) -> None:
    """A row without a fault, then each fault in turn, in `options.seconds` altogether if the faults
    leave time."""
    faults = [NOTHING, *all_faults(tuple(options.only), tuple(options.faults))]
    clock = asyncio.get_running_loop()
    for fault in faults:
        async with course.row(fault) as happens:
            begin = clock.time()
            await asyncio.sleep(BEFORE_SECONDS)
            if fault is not NOTHING:
                await course.load.until_under_way(options.under_way)
                await STRIKES[fault.kind](course.cluster, fault.service, happens)
                course.load.over()
            await asyncio.sleep(max(AFTER_SECONDS, begin + options.seconds / len(faults) - clock.time()))


async def rolling(course: Course, options: argparse.Namespace) -> None:
    """Every replica of every service is replaced by a new one, one after the other."""
    for service in options.only:
        async with course.row(Fault(service, "all rolled")) as happens:
            for _ in range(len(course.cluster.listed[service])):
                await roll(course.cluster, service, happens)
            course.load.over()
            await asyncio.sleep(AFTER_SECONDS)


async def scaling(course: Course, options: argparse.Namespace) -> None:
    """Each service from one replica to three, and back to one: the oldest leave."""
    for service in options.only:
        replicas = course.cluster.listed[service]
        async with course.row(Fault(service, f"1 to {_SCALED_TO}")) as happens:
            await course.cluster.add(service, _SCALED_TO - len(replicas))
            happens()
            course.load.over()
            await asyncio.sleep(AFTER_SECONDS)
        async with course.row(Fault(service, f"{_SCALED_TO} to 1")) as happens:
            while len(replicas) > 1:
                happens()
                await course.cluster.remove(replicas[0])
            course.load.over()
            await asyncio.sleep(AFTER_SECONDS)


SCENARIOS: dict[str, Callable[[Course, argparse.Namespace], Awaitable[None]]] = {
    "table": table,
    "rolling": rolling,
    "scaling": scaling,
}
