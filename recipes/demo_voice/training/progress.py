"""How far a training is, what it measured, and the loop around its steps."""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor
from tqdm import tqdm

Figures = Mapping[str, float]


@dataclass
class Schedule:
    """Progress from 0 to 1 by the clock or by steps, whichever is further; time spent before an
    interruption counts.

    minutes: training time in all. steps: optimiser steps in all. spent: seconds before this start.
    step: steps done.
    """

    minutes: float
    steps: int = 10**9
    spent: float = 0.0
    step: int = 0
    _began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Training time so far, earlier starts included."""
        return self.spent + time.monotonic() - self._began

    @property
    def progress(self) -> float:
        return min(1.0, max(self.seconds / (60 * self.minutes), self.step / self.steps))

    @property
    def over(self) -> bool:
        return self.progress >= 1.0

    def rate(self, peak: float, *, warm_up: int = 200, floor: float = 0.02) -> float:
        """Learning rate of the next step: linear warm-up over steps, then a half cosine down to
        `floor` of the peak.
        """
        return (
            peak
            * min(1.0, (self.step + 1) / warm_up)
            * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * self.progress)))
        )


class Journal:
    """Metrics of one training: a progress bar for people, one JSON line per report, and a plot of
    them.

    Files: `<folder>/journal.jsonl`, `<folder>/journal.png`.
    """

    def __init__(self, folder: Path, title: str, schedule: Schedule) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "journal.jsonl"
        self._title, self.schedule = title, schedule
        self._bar = tqdm(
            total=100,
            desc=title,
            unit="%",
            bar_format="{desc}: {n:.0f}%|{bar:20}| {elapsed} {postfix}",
            mininterval=5.0,
        )

    def tick(self) -> None:
        """Move the bar; call once per step."""
        self._bar.update(100 * self.schedule.progress - self._bar.n)

    def report(self, values: Figures) -> None:
        """Write one line: step, seconds and `values`."""
        line = {"step": self.schedule.step, "seconds": round(self.schedule.seconds, 1), **values}
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        figures = (
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in line.items()
        )
        self._bar.write(f"[{self._title}] " + " ".join(figures))

    def close(self) -> None:
        """Draw every number that was reported more than once against the steps."""
        self._bar.close()
        plot(self._path, self._path.with_suffix(".png"), self._title)


class Means:
    """Means of the terms of all steps so far, summed on the device, and the steps a second."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: Counter[str] = Counter()
        self._steps, self._began = 0, time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the first step began."""
        return time.monotonic() - self._began

    def add(self, terms: Mapping[str, Tensor]) -> None:
        """One step. The terms may be overwritten afterwards."""
        self._counts.update(terms.keys())
        self._steps += 1
        for name, term in terms.items():
            self._sums[name] = self._sums.get(name, 0) + term

    def take(self) -> dict[str, float]:
        """Empty without a step; waits for the device."""
        means = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        if self._steps:
            means["steps_a_second"] = self._steps / max(1e-6, self.seconds)
        return means


def run(
    journal: Journal,
    step: Callable[[], Mapping[str, Tensor]],
    measure: Callable[[], Figures],
    save: Callable[[], None],
    report_seconds: float,
    save_seconds: float = 60.0,
) -> dict[str, float]:
    """Step after step until the schedule of `journal` is over; nothing but a report waits for the
    device. Returns the means of the steps since the last report.

    step: makes one and returns its terms. measure: held-out figures, which a report adds to the
    means of the terms. save: leaves all that the training has so far in its folder.
    """
    means, saved = Means(), time.monotonic()
    while not journal.schedule.over:
        means.add(step())
        journal.tick()
        if means.seconds > report_seconds:
            journal.report({**means.take(), **measure()})
            means = Means()
        if time.monotonic() - saved > save_seconds:
            save()
            saved = time.monotonic()
    return means.take()


def plot(journal: Path, picture: Path, title: str) -> None:
    """One small panel per metric of a journal."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    series: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        for key, value in line.items():
            if key not in ("step", "seconds") and isinstance(value, int | float):
                series.setdefault(key, []).append((line["step"], value))
    drawn = {key: points for key, points in series.items() if len(points) > 1}
    if not drawn:
        return
    columns = min(4, len(drawn))
    rows = -(-len(drawn) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.2 * columns, 2.4 * rows), squeeze=False)
    for axis in axes.flat[len(drawn) :]:
        axis.axis("off")
    for axis, (key, points) in zip(axes.flat, drawn.items(), strict=False):
        axis.plot(*zip(*points, strict=True))
        axis.set_title(key, fontsize=8)
        axis.tick_params(labelsize=7)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(picture, dpi=90)
    plt.close(figure)
