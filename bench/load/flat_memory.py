"""Whether the memory of the services stays flat: samples of it, their slopes, and the verdict."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cosyserve.host.supervision.supervisor import LocalDeployment

FLAT_MEGABYTES = 1.0
"""Allowed growth per 100 requests."""


def sample(stack: LocalDeployment, done: float, samples: dict[str, list[tuple[float, float]]]) -> None:
    """Note the resident megabytes of every process of `stack` under its name, with
    `done`.
    """
    for child in stack.children:
        for line in Path(f"/proc/{child.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                samples.setdefault(f"{child.name}.{child.replica}", []).append((done, int(line.split()[1]) / 1024))


def slopes_by_hundred(samples: dict[str, list[tuple[float, float]]]) -> dict[str, float]:
    """Least squares, MB per 100 requests."""
    lines = {
        name: np.polyfit([done for done, _ in points], [held for _, held in points], 1)
        for name, points in samples.items()
    }
    return {name: float(line[0]) * 100 for name, line in lines.items()}


def slopes(lines: Mapping[str, Sequence[tuple[float, float]]], least: float = 0.0) -> dict[str, float]:
    """Least squares, by process; none for one that has fewer than three points, or less than
    `least` between the first and the last.
    """
    slope = {}
    for name, points in lines.items():
        places = [place for place, _ in points]
        if len(points) >= 3 and max(places) - min(places) >= least:
            slope[name] = float(np.polyfit(places, [held for _, held in points], 1)[0])
    return slope


def verdict(results: Mapping[str, Any]) -> list[str]:
    """What is wrong with a run; nothing if it holds."""
    grown = {name: slope for name, slope in results["by_requests"].items() if slope > FLAT_MEGABYTES}
    wrong = [f"{name} grows by {slope:.2f} MB in 100 requests" for name, slope in grown.items()]
    if not results["by_requests"]:
        wrong.append("too few requests to measure whether memory grows")
    if not results["heard_out"]:
        wrong.append("no answer was heard to its end")
    return wrong + [f"failed {count} times: {message}" for message, count in list(results["errors"].items())[:3]]
