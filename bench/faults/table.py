"""The table of faults: a row for each, of the listeners who belong to it."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.faults.listeners import CLIENT, HTTP, Listener
from bench.faults.strikes import Fault
from cosyserve.host.supervision.layout import GATEWAY

DRY_GOAL_SECONDS = 0.3
"""For kills and rolls."""
_WITH_GOAL = ("kill", "roll", "all rolled")
_MESSAGES = 5
HEAD = (
    "service",
    "fault",
    "requests",
    "in flight",
    "complete, identical",
    "other sound",
    "errors",
    "cut",
    "resumed",
    "longest dry, client",
    "longest dry, HTTP",
)


@dataclass(frozen=True)
class Row:
    """in_flight: requests under way at the fault, or at that of several with the most. requests:
    that met this fault first, or began before the next row. errors: all that were not heard to the
    end, but those that are `cut`: HTTP listeners of the very gateway that was killed. dry: the
    longest time in seconds for which a player was dry, by way. first_sound: median in seconds.
    real_time_factor: median of seconds to the end for a second of audio.
    """

    service: str
    fault: str
    seconds: float
    in_flight: int
    requests: int
    identical: int
    other_sound: int
    errors: int
    cut: int
    resumed: int
    dry: dict[str, float]
    first_sound: float
    real_time_factor: float
    messages: list[str]

    @classmethod
    def of(cls, fault: Fault, listeners: Sequence[Listener], in_flight: int, seconds: float) -> "Row":
        """listeners: those of the row; all have ended."""
        killed_gateway = fault == Fault(GATEWAY, "kill")
        failed = [one for one in listeners if one.error]
        cut = [one for one in failed if killed_gateway and one.cut and one.hit]
        errors = [one for one in failed if one not in cut]
        return cls(
            service=fault.service,
            fault=fault.kind,
            seconds=round(seconds, 1),
            in_flight=in_flight,
            requests=len(listeners),
            identical=sum(one.identical for one in listeners),
            other_sound=sum(not one.identical and not one.error for one in listeners),
            errors=len(errors),
            cut=len(cut),
            resumed=sum(one.resumed for one in listeners),
            dry={
                way: round(max((one.dry for one in listeners if one.way == way), default=0.0), 3)
                for way in (CLIENT, HTTP)
            },
            first_sound=round(_median([one.first for one in listeners if one.audio]), 3),
            real_time_factor=round(_median([one.seconds / one.audio for one in listeners if one.audio]), 3),
            messages=[f"{one.way}: {one.error}" for one in errors][:_MESSAGES],
        )

    @property
    def holds(self) -> bool:
        """Whether every request was heard whole and the same, or its gateway was killed."""
        heard = self.identical + self.cut == self.requests
        return heard and bool(self.requests or not self.service)

    @property
    def within_goal(self) -> bool | None:
        """Whether no player was dry for longer than the goal; None where there is none."""
        return max(self.dry.values()) <= DRY_GOAL_SECONDS if self.fault in _WITH_GOAL else None

    def cells(self) -> list[str]:
        """As under HEAD."""
        counts = (self.requests, self.in_flight, self.identical, self.other_sound, self.errors, self.cut, self.resumed)
        dry = [f"{1000 * self.dry[way]:.0f} ms" for way in (CLIENT, HTTP)]
        return [self.service or "none", self.fault, *map(str, counts), *dry]


def markdown(rows: Sequence[Row]) -> str:
    """The table, its sums, and what went wrong."""
    lines = [_line(HEAD), _line(["---"] * 2 + ["---:"] * (len(HEAD) - 2)), *(_line(row.cells()) for row in rows)]
    sums = [sum(getattr(row, name) for row in rows) for name in ("requests", "identical", "errors", "cut")]
    goal = [row.within_goal for row in rows if row.within_goal is not None]
    lines += [
        "",
        f"{sums[1]} of {sums[0]} requests complete and identical, {sums[2]} errors, "
        f"{sums[3]} cut with a killed gateway; "
        f"{sum(goal)} of {len(goal)} kills and rolls within {1000 * DRY_GOAL_SECONDS:.0f} ms.",
    ]
    lines += [f"* {row.service} {row.fault}: {text}" for row in rows for text in row.messages]
    return "\n".join(lines)


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_dicts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For JSON."""
    return [asdict(row) for row in rows]
