"""How evenly do several orchestrators spread their calls over the replicas of a stage?
`python -m bench.replica_choice`

A simulation in virtual time: the choice is the product's own, beside others; reports of the load
are as old as they are over a real connection. Printed are the calls at the fullest replica relative
to the mean, the difference to the emptiest, and the calls that each replica got.
"""

import argparse
import heapq
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cosyserve.rpc.load.reported import Balanced, Reported, least_busy

Choice = Callable[["Simulation", int], int]
"""The replica for the next call of an orchestrator."""


@dataclass(frozen=True)
class Load:
    """What comes. shares: of the requests that each orchestrator gets. per_second: requests of all.
    together: how many come at once. seconds: mean length of a call, exponentially distributed.
    """

    shares: tuple[float, ...] = (1.0, 1.0, 1.0)
    per_second: float = 8.0
    together: int = 1
    seconds: float = 3.0


@dataclass
class Spread:
    """Calls at the replicas, averaged over time after the first tenth."""

    fullest: float = 0.0
    """Calls at the fullest replica, relative to the mean of all."""
    difference: float = 0.0
    """Between the fullest and the emptiest replica, in calls."""
    begun: list[int] = field(default_factory=list)
    """Calls that each replica got."""


class Simulation:
    """gap: least seconds between two reports of a replica to one orchestrator. delay: seconds that
    a report is under way.
    """

    def __init__(
        self, load: Load, choice: Choice, replicas: int = 3, gap: float = 0.2, delay: float = 0.005, seed: int = 1
    ) -> None:
        self._load, self._choice, self._gap, self._delay = load, choice, gap, delay
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.now = 0.0
        self.orchestrators = range(len(load.shares))
        self.replicas = range(replicas)
        self.views = [[Balanced() for _ in self.replicas] for _ in self.orchestrators]
        self.calls = [0] * replicas
        """In progress at each replica."""
        self.known = [[0] * replicas for _ in self.orchestrators]
        """The same by the last report to each orchestrator."""
        self._next_report = [[0.0] * replicas for _ in self.orchestrators]
        self._planned = [[False] * replicas for _ in self.orchestrators]
        self.begun = [0] * replicas

    def run(self, seconds: float) -> Spread:
        """Let so many seconds pass."""
        for orchestrator, replica in itertools.product(self.orchestrators, self.replicas):
            self._report(orchestrator, replica)
        for at in self._arrivals(seconds):
            self._at(at, self._arrive)
        spread, measured, since = Spread(begun=self.begun), 0.0, seconds / 10
        while self._events and self._events[0][0] < seconds:
            at, _, event = heapq.heappop(self._events)
            if self.now >= since and (total := sum(self.calls)):
                passed, most = at - self.now, max(self.calls)
                measured += passed
                spread.fullest += passed * most * len(self.calls) / total
                spread.difference += passed * (most - min(self.calls))
            self.now = at
            event()
        spread.fullest /= measured
        spread.difference /= measured
        return spread

    def _arrivals(self, seconds: float) -> Iterator[float]:
        at = 0.0
        while (at := at + self._random.expovariate(self._load.per_second / self._load.together)) < seconds:
            yield from itertools.repeat(at, self._load.together)

    def _at(self, at: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at, next(self._order), event))

    def _arrive(self) -> None:
        orchestrator = self._random.choices(self.orchestrators, self._load.shares)[0]
        replica = self._choice(self, orchestrator)
        view = self.views[orchestrator][replica]
        view.calls += 1
        view.begun += 1
        self.begun[replica] += 1
        self._changed(replica, 1)

        def ends() -> None:
            view.calls -= 1
            self._changed(replica, -1)

        self._at(self.now + self._random.expovariate(1 / self._load.seconds), ends)

    def _changed(self, replica: int, by: int) -> None:
        self.calls[replica] += by
        for orchestrator in self.orchestrators:
            self._report(orchestrator, replica)

    def _report(self, orchestrator: int, replica: int) -> None:
        """As InfoService.WatchLoad: at once, or when the interval is over."""
        if self._planned[orchestrator][replica]:
            return
        self._planned[orchestrator][replica] = True

        def report() -> None:
            self._planned[orchestrator][replica] = False
            self._next_report[orchestrator][replica] = self.now + self._gap
            total, view = self.calls[replica], self.views[orchestrator][replica]
            others = total - view.calls

            def arrives() -> None:
                view.reported = Reported(others, callers=len(self.orchestrators), begun=view.begun)
                self.known[orchestrator][replica] = total

            self._at(self.now + self._delay, arrives)

        self._at(max(self.now, self._next_report[orchestrator][replica]), report)


def _index(able: Sequence[Balanced], chosen: Balanced | None) -> int:
    return next(at for at, each in enumerate(able) if each is chosen)


def of_the_product(simulation: Simulation, orchestrator: int) -> int:
    """`least_busy`."""
    able = simulation.views[orchestrator]
    return _index(able, least_busy(able))


def by_own_calls(simulation: Simulation, orchestrator: int) -> int:
    """The fewest calls of this orchestrator, as before there were reports."""
    return min(simulation.replicas, key=lambda at: simulation.views[orchestrator][at].calls)


def by_report_alone(simulation: Simulation, orchestrator: int) -> int:
    """The fewest calls in the last report: all orchestrators run after the same replica."""
    return min(simulation.replicas, key=lambda at: simulation.known[orchestrator][at])


def of_two(simulation: Simulation, orchestrator: int) -> int:
    """The better one in the report, of two that chance names."""
    two = random.sample(simulation.replicas, 2)
    return min(two, key=lambda at: simulation.known[orchestrator][at])


def by_truth(simulation: Simulation, orchestrator: int) -> int:
    """The fewest calls now, which no orchestrator knows."""
    return min(simulation.replicas, key=lambda at: simulation.calls[at])


CHOICES: dict[str, Choice] = {
    "the truth": by_truth,
    "reports and own calls": of_the_product,
    "own calls": by_own_calls,
    "reports alone": by_report_alone,
    "two by chance": of_two,
}
LOADS = {
    "a dozen calls": Load(per_second=4.0),
    "fifty calls": Load(per_second=16.0),
    "most at one": Load(shares=(8.0, 1.0, 1.0), per_second=16.0),
    "thirty at once": Load(per_second=8.0, together=30),
    "ten at once": Load(per_second=16.0, together=10),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.replica_choice", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2_000.0, help="simulated for each figure")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--gap", type=float, nargs="+", default=[0.2, 1.0], help="seconds between two reports")
    options = parser.parse_args()
    for gap, (load_name, load) in itertools.product(options.gap, LOADS.items()):
        for name, choice in CHOICES.items():
            spread = Simulation(load, choice, options.replicas, gap).run(options.seconds)
            print(
                f"{gap:g} s  {load_name:15} {name:22} {spread.fullest:5.2f} {spread.difference:6.2f}   {spread.begun}",
                flush=True,
            )


if __name__ == "__main__":
    main()
