"""`report.md` and its plots: what was asked for and seen, then every table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.gpu import stage_tables
from bench.gpu.targets import Target, demands, levels, rows
from bench.gpu.timing import LowerBounds
from bench.parts.command import figures, write_json
from bench.parts.ledger import Ledger
from bench.parts.part import Part
from bench.reports import plots
from bench.reports.tables import Cell, first_sound, offline, served, state, table, titled

SERVED = ("closed", "poisson", "most", "most-long", "slow")
DRAWN = ("closed", "poisson", "most")
OFFLINE = ("offline", "offline-readable")


def write(out: Path, parts: Sequence[Part], ledger: Ledger) -> None:
    """Everything that is known so far."""
    results = figures(out, parts)
    outcomes = demands(results)
    write_json(out, parts, ledger, demands=[asdict(one) for one in outcomes])
    drawn = _plots(results)
    (out / "report.md").write_text(
        "\n".join(text(results, outcomes, parts, ledger, list(drawn))) + "\n", encoding="utf-8"
    )
    for name, draw in drawn.items():
        draw(out / name, ledger.subject.machine)


def text(
    results: Mapping[str, Any], outcomes: Sequence[Target], parts: Sequence[Part], ledger: Ledger, drawn: Sequence[str]
) -> list[str]:
    """The lines of the report."""
    ceilings = results.get("ceilings", {}).get("ceilings")
    floors = LowerBounds(ceilings) if ceilings else None
    lines = ["# Measured on one GPU", "", f"{ledger.subject}.", "", *state(parts, ledger)]
    sections = {
        "What was asked for": table(("what", "goal", "seen", "floor", "holds"), rows(outcomes)),
        "Ceilings": stage_tables.ceilings(results),
        "Speech tokens": [
            *stage_tables.speech_tokens(results),
            *stage_tables.one_launch(results),
            *stage_tables.prompts(results),
        ],
        "Flow": stage_tables.flow(results, floors),
        "Vocoder": stage_tables.vocoder(results, floors),
        "Lengths and memory": stage_tables.memory(results),
        "Correctness": stage_tables.correctness(results),
        "Served over gRPC": [line for part in SERVED for line in served(levels(results, part))],
        "The first sound, medians in ms": [line for part in SERVED for line in first_sound(levels(results, part))],
        "Sentences in batches, without listeners": offline(
            one for part in OFFLINE for one in results.get(part, {}).values()
        ),
        "Soak": soak(results),
        "Plots": [f"![{name}]({name})" for name in drawn] + [""] * bool(drawn),
    }
    return [*lines, *titled(sections)]


def soak(results: Mapping[str, Any]) -> list[str]:
    one = results.get("soak")
    if not one:
        return []
    lines: list[Sequence[Cell]] = []
    for name, points in one["samples"].items():
        held = [megabytes for _, megabytes in points]
        lines.append((name, held[0], held[-1], max(held), one["slopes"].get(name), one["by_requests"].get(name)))
    return table(
        ("process", "first, MB", "last, MB", "most, MB", "MB a minute after the warm-up", "MB in 100 requests"), lines
    )


def _plots(results: Mapping[str, Any]) -> dict[str, Callable[[Path, str], None]]:
    """What can be drawn, by file name; each is called with the file and the machine."""
    drawn: dict[str, Callable[[Path, str], None]] = {}
    loads = [one for part in DRAWN for one in levels(results, part)]
    if loads:
        drawn["streams.png"] = lambda path, machine: plots.plot(path, machine, loads)
    if results.get("soak", {}).get("samples"):
        drawn["soak.png"] = lambda path, machine: plots.memory(path, machine, results["soak"])
    return drawn if drawn and plots.can_plot() else {}
