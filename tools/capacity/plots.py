"""A run as an SVG: load, pods, players without a gap, first sound, refusals over time."""

from collections.abc import Sequence

from tools.capacity.fleet.layout import STAGES
from tools.capacity.fleet.outcome import Period, of_all
from tools.panels import Line, Panel, drawing


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
    return drawing(title, [period.at for period in periods], panels(periods))
