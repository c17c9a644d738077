"""The report of an acceptance: a row for each step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.acceptance.step import FELL_SHORT, NOT_RUN, PASSED, Step, Verdict, verdict
from bench.parts.command import figures
from bench.parts.ledger import Ledger
from bench.parts.part import write
from bench.reports.tables import table

ACCEPTED, REFUSED, INCOMPLETE = 0, 1, 3
"""Exit status: all steps passed; one failed; none failed and some were not run."""


def verdicts(out: Path, steps: Sequence[Step], ledger: Ledger) -> list[Verdict]:
    measured = figures(out, [step.part for step in steps])
    return [verdict(step, ledger.runs.get(step.part.name), measured.get(step.part.name)) for step in steps]


def status(found: Sequence[Verdict]) -> int:
    outcomes = {one.verdict for one in found}
    if FELL_SHORT in outcomes:
        return REFUSED
    return INCOMPLETE if NOT_RUN in outcomes else ACCEPTED


def summary(found: Sequence[Verdict]) -> str:
    counts = Counter(one.verdict for one in found)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in (PASSED, FELL_SHORT, NOT_RUN))


def as_dict(found: Sequence[Verdict], ledger: Ledger, model: str) -> Mapping[str, Any]:
    return {
        "model": model,
        "subject": asdict(ledger.subject),
        "status": status(found),
        "summary": summary(found),
        "steps": [asdict(one) for one in found],
    }


def text(found: Sequence[Verdict], ledger: Ledger, model: str) -> str:
    """Markdown."""
    rows = [
        (one.name, one.verdict, one.figure or one.why, one.limit, f"{one.seconds:.0f} s" if one.seconds else "")
        for one in found
    ]
    failed = [f"* `{one.name}`: {one.why}" for one in found if one.verdict == FELL_SHORT]
    lines = [
        f"# Acceptance of {model}", "", f"{ledger.subject}.", "", f"{summary(found)}.", "",
        *table(("step", "verdict", "figure, or why it was not run", "limit", "took"), rows),
        *(["## What failed", "", *failed, ""] if failed else []),
        "## Commands", "", *(f"* `{one.name}`, {one.about}: `{one.command}`" for one in found),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def keep(out: Path, steps: Sequence[Step], ledger: Ledger, model: str) -> None:
    """Write `report.md` and `report.json`."""
    found = verdicts(out, steps, ledger)
    (out / "report.md").write_text(text(found, ledger, model), encoding="utf-8")
    write(out / "report.json", as_dict(found, ledger, model))
