"""Figures of a row, and the tables that they make in the report."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.gpu.sharing.rows import COLD, ONE, ROWS
from bench.gpu.sharing.worker import FAILED
from bench.reports.tables import Cell, table

HEARD = ("flow", "vocoder", "sound")
Figures = dict[str, Any]
"""{"passes": {"1": {...}}, "service": {"flow": {...}, ...}, "llm": {"token": {...}}} of {"p50",
"p95", "count"}; or {FAILED: reason}.
"""


def spans(milliseconds: Sequence[float]) -> dict[str, float]:
    """Nothing of nothing."""
    if not milliseconds:
        return {}
    return {
        "p50": statistics.median(milliseconds),
        "p95": sorted(milliseconds)[int(0.95 * (len(milliseconds) - 1))],
        "count": len(milliseconds),
    }


def summary(times: Mapping[str, Mapping[str, Sequence[float]]]) -> Figures:
    return {part: {name: spans(milliseconds) for name, milliseconds in named.items()} for part, named in times.items()}


def sharing(results: Mapping[str, Any]) -> list[str]:
    """results: figures of all parts. Two tables: passes by themselves, and through the service."""
    figures: Mapping[str, Figures] = results.get("sharing", {})
    known = [(row, figures[row.name]) for row in ROWS if row.name in figures]
    passes = [
        (
            row.gpu,
            row.other,
            row.passes,
            *_two(one, "passes", str(ONE)),
            *_two(one, "passes", str(COLD)),
            *_two(one, "llm", "token"),
            _why(one),
        )
        for row, one in known
        if not row.service
    ]
    service = [
        (
            row.gpu,
            row.other,
            *(cell for name in HEARD for cell in _two(one, "service", name)),
            *_two(one, "llm", "token"),
            _why(one),
        )
        for row, one in known
        if row.service
    ]
    last = ("token p50, ms", "p95", "not measured")
    return [
        *table(("GPU", "LLM", "pass", "1 unit p50, ms", "p95", "4 units p50, ms", "p95", *last), passes),
        *table(
            ("GPU", "LLM", "flow p50, ms", "p95", "vocoder p50, ms", "p95", "first sound p50, ms", "p95", *last),
            service,
        ),
    ]


def _why(one: Figures) -> str:
    return str(one.get(FAILED, ""))


def _two(one: Figures, part: str, name: str) -> tuple[Cell, Cell]:
    figures = one.get(part, {}).get(name, {})
    return figures.get("p50"), figures.get("p95")
