"""Whether what the processes hold stays flat."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.load.flat_memory import FLAT_MEGABYTES
from bench.whole_soak.samples import Sample
from bench.whole_soak.up import UP

SPARE = {"descriptors": 4, "threads": 8, "tasks": 0}
"""More of each, behind the load, that are no growth: pools of threads fill by and by, and the last
connection of a caller that has gone is closed when its process next has something to do.
"""
LEAST_REQUESTS = 1_000
"""Fewer say nothing about the slope of the memory."""


@dataclass(frozen=True)
class Row:
    """One process. idle: descriptors, threads and tasks without a request, before the load and
    behind it. megabytes: the first and the last of the line that fits the samples; slope: of it, in
    100 requests.
    """

    process: str
    megabytes: tuple[float, float]
    slope: float
    descriptors: tuple[int, int]
    threads: tuple[int, int]
    tasks: tuple[int | None, int | None]


def rows(samples: Sequence[Sample], before: Sample, behind: Sample) -> list[Row]:
    """Of every process that lived all the time."""
    return [
        Row(
            name,
            *_line([sample.requests for sample in samples], [sample.held[name].megabytes for sample in samples]),
            *((getattr(before.held[name], each), getattr(behind.held[name], each)) for each in SPARE),
        )
        for name in before.held
        if name in behind.held and all(name in sample.held for sample in samples)
    ]


def _line(requests: Sequence[int], megabytes: Sequence[float]) -> tuple[tuple[float, float], float]:
    if len(requests) < 3 or requests[-1] == requests[0]:
        return (megabytes[0], megabytes[-1]), 0.0
    slope, at = np.polyfit(requests, megabytes, 1)
    return (float(at + slope * requests[0]), float(at + slope * requests[-1])), 100 * float(slope)


def wrong(found: Sequence[Row], requests: int, errors: Mapping[str, int], restarted: Sequence[str]) -> list[str]:
    """A line for everything that is not as it should be."""
    lines = [f"{row.process} grows by {row.slope:.2f} MB in 100 requests" for row in found if grows(row, requests)]
    for row in found:
        for each in SPARE:
            first, last = getattr(row, each)
            if last is not None and first is not None and last > first + SPARE[each]:
                lines.append(f"{row.process} has {last} {each} when idle, {first} before the load")
            if row.process != UP and last is None:
                lines.append(f"{row.process} exports no {each}")
    lines += [f"{name} did not live to the end" for name in restarted]
    return lines + [f"{count} times: {text}" for text, count in errors.items()]


def grows(row: Row, requests: int) -> bool:
    return requests >= LEAST_REQUESTS and row.slope > FLAT_MEGABYTES
