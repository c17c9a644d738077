"""Figures as Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.parts.ledger import DONE, Ledger
from bench.parts.part import Part
from bench.reports.serving_report import Level
from cosyserve.client.types import STAGES

Cell = str | int | float | None


def cell(value: Cell) -> str:
    """Three significant digits; nothing for what was not measured."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)


def table(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
    """Lines of a Markdown table, and a blank one behind it; nothing without rows."""
    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines, ""] if lines else []


def columns(rows: Sequence[Mapping[str, Cell]], *names: str) -> list[str]:
    """A table of `rows`, with the columns `names`, or all."""
    chosen = names or tuple(next(iter(rows), {}))
    return table([name.replace("_", " ") for name in chosen], ([row[name] for name in chosen] for row in rows))


def served(levels: Sequence[Level]) -> list[str]:
    """Loads of the services."""
    head = (
        "arrivals", "streams", "requests", "refused", "failed", "first byte p50, ms", "p95", "p99",
        "first audible p50, ms", "p95", "RTF", "audio s/s", "gap-free", "longest stall, s", "GPU MB",
    )  # fmt: skip
    return table(head, (
        (one.arrivals, one.streams, one.requests, one.refused, one.failed, one.p50, one.p95, one.p99, one.audible_p50,
        one.audible_p95,
         one.real_time_factor,
         one.audio_per_second, f"{one.gap_free:.1%}", one.stall_seconds, one.megabytes)
        for one in levels
    ))  # fmt: skip


def first_sound(levels: Sequence[Level]) -> list[str]:
    """Where its milliseconds went; what is left over is waiting and transport."""
    head = (
        "arrivals",
        "streams",
        *(stage.replace("_", " ") for stage in STAGES),
        "waiting and transport",
        "first byte p50, ms",
    )
    return table(head, (
        (one.arrivals, one.streams, *(one.stages[stage] for stage in STAGES),
        max(0.0, one.p50 - sum(one.stages.values())), one.p50)
        for one in levels
    ))  # fmt: skip


def offline(costs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Sentences in batches, as `bench.offline` measures them."""
    rows = []
    for one in costs:
        total = one["llm"] + one["token2wav"]
        seconds = (f"{one['audio']:.1f}", f"{one['llm']:.2f}", f"{one['token2wav']:.2f}", f"{total:.2f}")
        rows.append((one["engines"], one["batch"], one["sentences"], *seconds, f"{total / one['audio']:.4f}"))
    return table(("engines", "batch", "sentences", "audio s", "LLM s", "token2wav s", "total s", "RTF"), rows)


def titled(sections: Mapping[str, Sequence[str]]) -> list[str]:
    """The sections that have something, each under its title."""
    return [line for title, lines in sections.items() if lines for line in (f"## {title}", "", *lines)]


def state(parts: Sequence[Part], ledger: Ledger) -> list[str]:
    """Parts that are not done, by name and with what they said last; then all with their
    commands.
    """
    lines: list[str] = []
    for part in parts:
        run = ledger.runs.get(part.name)
        if run is None or run.state != DONE:
            lines.append(
                f"* **{part.name}: {run.state if run else 'not run'}**"
                + "".join(f"\n      {line}" for line in (run.told if run else []))
            )
    done = [
        (part.name, part.about, run.seconds)
        for part in parts
        if (run := ledger.runs.get(part.name)) and run.state == DONE
    ]
    return [*lines, "", *table(("part", "what", "seconds"), done)]
