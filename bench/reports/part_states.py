"""How the parts ended, as text."""

from collections.abc import Sequence

from bench.parts.ledger import DONE, Ledger
from bench.parts.part import Part
from bench.reports.tables import table


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
                + "".join(f"\n      {told}" for told in (run.told if run else []))
            )
    done = [
        (part.name, part.about, run.seconds)
        for part in parts
        if (run := ledger.runs.get(part.name)) and run.state == DONE
    ]
    return [*lines, "", *table(("part", "what", "seconds"), done)]
