"""Whether the memory of the services stays flat: samples of it, their slopes, and the verdict."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosyserve.host.supervision.supervisor import LocalDeployment

FLAT_MEGABYTES = 1.0
"""Allowed growth per 100 requests, and per ten minutes of sound."""
PAGE_MEGABYTES = os.sysconf("SC_PAGE_SIZE") / (1 << 20)
Points = Mapping[str, Sequence[tuple[float, float]]]
"""Where a sample was taken, as a number of requests or of seconds, and megabytes, by process."""


def look(stack: LocalDeployment, place: float, samples: dict[str, list[tuple[float, float]]]) -> None:
    """Add the resident memory of every process of `stack`, under its name, to `samples`."""
    for child in stack.children:
        pages = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1])
        samples.setdefault(f"{child.name}.{child.replica}", []).append((place, pages * PAGE_MEGABYTES))


def slopes(points: Points, per: float = 1.0, least: float = 0.0) -> dict[str, float]:
    """Least squares, megabytes by process for `per` of the places; none for one that has fewer than
    three points, or less than `least` between the first and the last.
    """
    slope = {}
    for name, line in points.items():
        places = [place for place, _ in line]
        if len(line) >= 3 and max(places) - min(places) >= least:
            slope[name] = per * float(np.polyfit(places, [held for _, held in line], 1)[0])
    return slope


@dataclass(frozen=True)
class Memory:
    """What a soak of a fixed length saw. slopes: MB by process. megabytes: resident at the first
    and the last sample that counts.
    """

    slopes: dict[str, float]
    megabytes: dict[str, tuple[float, float]]

    @classmethod
    def of(cls, points: Points, per: float) -> "Memory":
        """per: as in `slopes`."""
        return cls(slopes(points, per), {name: (line[0][1], line[-1][1]) for name, line in points.items()})

    @property
    def flat(self) -> bool:
        return all(slope <= FLAT_MEGABYTES for slope in self.slopes.values())

    def text(self, unit: str) -> str:
        """A line for each process. unit: what a slope is for, in words."""
        return "\n".join(
            f"{name:16} {first:7.1f} MB -> {last:7.1f} MB   {self.slopes[name]:+.3f} MB per {unit}"
            for name, (first, last) in self.megabytes.items()
            if name in self.slopes
        )


def verdict(results: Mapping[str, Any]) -> list[str]:
    """What is wrong with a run; nothing if it holds."""
    grown = {name: slope for name, slope in results["by_requests"].items() if slope > FLAT_MEGABYTES}
    wrong = [f"{name} grows by {slope:.2f} MB in 100 requests" for name, slope in grown.items()]
    if not results["by_requests"]:
        wrong.append("too few requests to measure whether memory grows")
    if not results["heard_out"]:
        wrong.append("no answer was heard to its end")
    return wrong + [f"failed {count} times: {message}" for message, count in list(results["errors"].items())[:3]]
