"""Sets of moments as sorted intervals that do not touch: what spans cover, and what they leave."""

from collections.abc import Iterable

Interval = tuple[int, int]
"""Start and end in nanoseconds."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The moments in any of `intervals`, which may overlap; empty ones have none."""
    joined: list[Interval] = []
    for start, end in sorted(each for each in intervals if each[0] < each[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def clipped(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """The parts of `intervals` inside `window`."""
    cut = ((max(start, window[0]), min(end, window[1])) for start, end in intervals)
    return [each for each in cut if each[0] < each[1]]


def outside(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """The moments of `window` in none of `intervals`."""
    gaps, at = [], window[0]
    for start, end in union(clipped(intervals, window)):
        if at < start:
            gaps.append((at, start))
        at = end
    return [*gaps, (at, window[1])] if at < window[1] else gaps


def nanoseconds(intervals: Iterable[Interval]) -> int:
    """How long they are together; they must not overlap."""
    return sum(end - start for start, end in intervals)
