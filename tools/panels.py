"""Lines over time as an SVG, one panel below the other; without matplotlib, which is not installed
where the services are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, TOP, BELOW = 860, 130, 70, 40, 34
"""Pixels: of a panel, and of the margins around it."""
NAME_WIDTH = 90
"""Of the name of a line, in pixels."""
BESIDE_TITLE = 5
"""Names beside the title of a panel; more have a row below the title of the drawing, and are the
same in every panel.
"""
COLOURS = (
    "#1b6ca8", "#d1495b", "#2e8b57", "#edae49", "#6a4c93", "#444444", "#17a2b8", "#a0522d", "#e377c2",
)  # fmt: skip


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


def drawing(title: str, seconds: Sequence[float], panels: Sequence[Panel]) -> str:
    """The whole. seconds: of each value. Raises ValueError without any."""
    if not seconds:
        raise ValueError("there is nothing to draw")
    names = [line.name for line in panels[0].lines] if max(len(panel.lines) for panel in panels) > BESIDE_TITLE else []
    top = TOP + (20 if names else 0)
    height = top + len(panels) * (HEIGHT + BELOW)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 40}" height="{height + 10}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="16" font-size="13">{escape(title)}</text>',
        *(_name(name, number, LEFT + NAME_WIDTH * number, 34) for number, name in enumerate(names)),
    ]
    passed = [at - seconds[0] for at in seconds]
    for at, panel in enumerate(panels):
        parts += _panel(panel, top + at * (HEIGHT + BELOW), passed, named=not names)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _name(name: str, number: int, x: float, y: float) -> str:
    return f'<text x="{x}" y="{y}" fill="{COLOURS[number % len(COLOURS)]}">{escape(name)}</text>'


def _panel(panel: Panel, top: float, seconds: Sequence[float], *, named: bool) -> list[str]:
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
        if named:
            parts.append(_name(line.name, number, LEFT + WIDTH - NAME_WIDTH * (len(panel.lines) - number), top - 5))
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
