"""Which parts have been run, how each ended, and for which subject."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.parts.part import LOGS, Part, write
from bench.parts.provenance import Subject

FILE = "runs.json"
REPORTS = ("report.md", "report.json", "streams.png", "soak.png")
"""What reports leave next to the figures."""
DONE, FAILED, LATE, LEFT_OUT, STOPPED = "done", "failed", "late", "left out", "stopped"


@dataclass(frozen=True)
class Run:
    """state: DONE, FAILED, LATE (stopped at its limit), LEFT_OUT (no time was left, or what it
    needs failed) or STOPPED (together with the measurement). told: its last lines when it is not
    done. under: conditions of the part when it was run.
    """

    state: str
    seconds: float
    commands: list[str]
    told: list[str]
    under: str = ""


class Ledger:
    """FILE in a directory of figures."""

    def __init__(self, out: Path, subject: Subject, runs: dict[str, Run] | None = None) -> None:
        self.out, self.subject, self.runs = out, subject, runs or {}

    @classmethod
    def read(cls, out: Path) -> "Ledger | None":
        """What is kept in `out`, whatever its subject; None when nothing is."""
        path = out / FILE
        if not path.exists():
            return None
        content = json.loads(path.read_text())
        return cls(out, Subject(**content["subject"]), {name: Run(**run) for name, run in content["parts"].items()})

    @classmethod
    def go_on(cls, out: Path, subject: Subject, parts: Sequence[Part] = ()) -> "Ledger":
        """What is kept in `out` of the same subject. Otherwise a new one is begun, and figures of
        `parts` and of what was run there are taken away with their reports; nothing else in `out`
        is touched."""
        ledger = cls.read(out)
        if ledger and ledger.subject.same(subject):
            return cls(out, subject, ledger.runs)
        _emptied(out, {*(ledger.runs if ledger else ()), *(part.name for part in parts)})
        begun = cls(out, subject)
        write(out / FILE, begun._whole())
        return begun

    def due(self, part: Part) -> bool:
        """Whether it still has to be run: it is not done, or under other conditions, or what it
        makes is gone.
        """
        run = self.runs.get(part.name)
        return not (
            run and run.state == DONE and run.under == part.under and (part.makes is None or part.makes.exists())
        )

    def begin(self, part: Part) -> None:
        """Take away figures that it cannot go on from. Until its end is noted it counts as
        stopped.
        """
        run = self.runs.get(part.name)
        if not part.keeps or run is None or run.under != part.under:
            part.figures(self.out).unlink(missing_ok=True)
        self.note(part, Run(STOPPED, 0.0, [], [], part.under))

    def leave_out(self, part: Part, why: str) -> None:
        """It is not begun; figures that it has stay, with their conditions."""
        run = self.runs.get(part.name)
        self.note(part, Run(LEFT_OUT, 0.0, [], [why], run.under if run else part.under))

    def lacks(self, part: Part) -> bool:
        """Whether it was run without a result: it is not done, and its output is missing."""
        run = self.runs.get(part.name)
        return run is not None and run.state in (FAILED, LATE) and (part.makes is None or not part.makes.exists())

    def forget(self, part: Part) -> None:
        """It is as if it had never been run."""
        self.runs.pop(part.name, None)
        part.figures(self.out).unlink(missing_ok=True)

    def note(self, part: Part, run: Run) -> None:
        self.runs[part.name] = run
        write(self.out / FILE, self._whole())

    def _whole(self) -> object:
        return {"subject": asdict(self.subject), "parts": {name: asdict(run) for name, run in self.runs.items()}}


def _emptied(out: Path, names: Iterable[str]) -> None:
    """Of the figures and logs of these parts, and of reports."""
    files = [file for name in names for file in (f"{name}.json", f"{LOGS}/{name}.log")]
    for file in (*files, *REPORTS):
        (out / file).unlink(missing_ok=True)
