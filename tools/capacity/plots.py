"""A run as an SVG: load, pods, players without a gap, first sound, refusals over time. Written
here, since what plots elsewhere is not installed where the services are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tools.capacity.fleet.layout import STAGES
from tools.capacity.fleet.outcome import Period, of_all

WIDTH, HEIGHT, LEFT, TOP, BELOW = 860, 130, 70, 40, 34
"""Pixels: of a panel, and of the margins around it."""
COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#edae49", "#6a4c93")


@dataclass(frozen=True)
class Line:
    """values: one for each period, None where there is none. steps: drawn as stairs."""

    name: str
    values: Sequence[float | None]
    steps: bool = False


@dataclass(frozen=True)
class Panel:
    """least: the smallest value of the axis that is shown."""

    title: str
    lines: Sequence[Line]
    least: float = 0.0


def panels(periods: Sequence[Period]) -> list[Panel]:
    """What there is to see of a run."""
    percentiles = [Line(f"p{percent}", _milliseconds(of_all(periods, percent))) for percent in (50, 95, 99)]
    shares = [None if (one := period.gap_free_share) is None else 100 * one for period in periods]
    least = min([share for share in shares if share is not None], default=100.0)
    return [
        Panel(
            "requests in the period, and streams at its end",
            [Line("requests", [one.arrived for one in periods]), Line("streams", [one.streams for one in periods])],
        ),
        Panel(
            "pods that serve",
            [Line(name, [one.replicas.get(name, 0) for one in periods], steps=True) for name in STAGES],
        ),
        Panel("players without a gap, %", [Line("gap-free", shares)], least=min(least - 1.0, 99.0)),
        Panel("first sound, ms", percentiles),
        Panel(
            "requests refused, failed",
            [Line("refused", [one.refused for one in periods]), Line("failed", [one.failed for one in periods])],
        ),
    ]


def _milliseconds(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else 1000 * value for value in values]


def svg(title: str, periods: Sequence[Period]) -> str:
    """The whole drawing. Raises ValueError for a run without periods."""
    if not periods:
        raise ValueError("there is nothing to draw: the run has no periods")
    drawn = panels(periods)
    height = TOP + len(drawn) * (HEIGHT + BELOW)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{height + 10}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="16" font-size="13">{escape(title)}</text>',
    ]
    for at, panel in enumerate(drawn):
        parts += _panel(panel, TOP + at * (HEIGHT + BELOW), [one.at - periods[0].at for one in periods])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, top: float, seconds: Sequence[float]) -> list[str]:
    known = [value for line in panel.lines for value in line.values if value is not None]
    most = max([*known, panel.least + 1.0])
    last = max(seconds[-1], 1.0)

    def x(at: float) -> float:
        return LEFT + WIDTH * at / last

    def y(value: float) -> float:
        return top + HEIGHT * (1 - (value - panel.least) / (most - panel.least))

    parts = [
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999999"/>',
        f'<text x="{LEFT}" y="{top - 5}">{escape(panel.title)}</text>',
        *(
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.4g}</text>'
            for value in (panel.least, (panel.least + most) / 2, most)
        ),
        *(
            f'<text x="{x(part * last / 5):.1f}" y="{top + HEIGHT + 13}" text-anchor="middle">'
            f"{part * last / 5 / 60:.1f} min</text>"
            for part in range(6)
        ),
    ]
    for number, line in enumerate(panel.lines):
        colour = COLOURS[number % len(COLOURS)]
        for run in _runs(line.values):
            points = _points([(x(seconds[at]), y(value)) for at, value in run], steps=line.steps)
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(
            f'<text x="{LEFT + WIDTH - 90 * (len(panel.lines) - number)}" y="{top - 5}" fill="{colour}">'
            f"{escape(line.name)}</text>"
        )
    return parts


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Stretches without a missing value."""
    runs: list[list[tuple[int, float]]] = [[]]
    for at, value in enumerate(values):
        if value is not None:
            runs[-1].append((at, value))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _points(places: Sequence[tuple[float, float]], *, steps: bool) -> str:
    drawn: list[tuple[float, float]] = []
    for place in places:
        if steps and drawn:
            drawn.append((place[0], drawn[-1][1]))
        drawn.append(place)
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
