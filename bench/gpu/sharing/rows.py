"""The rows of the measurement: how the GPU is shared, what each of the two processes does, and the
tables that their figures make in the report.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.gpu.sharing.worker import FAILED
from bench.reports.tables import Cell, table

HIGH, NORMAL, EARLY, SEVERAL = "high", "normal", "early", "several"
"""Ways of the speech-token model: its stream goes before others, or not; it does, and in a step for
one sentence a kernel comes at once, to wait on the device, instead of when the product of the one
before is done; it does, and that step has the blocks of one for several sentences."""
MEETING, APART, AHEAD = "meeting", "apart", "ahead"
"""Ways of a pass: as it serves; a product a launch, so that no programs wait for each other; as it
serves, on a stream of high priority.
"""
ONE, COLD = 1, 4
"""Units of a pass: behind a prompt of 87 tokens that is kept, and with the prompt."""


@dataclass(frozen=True)
class Decoding:
    """A speech-token model at work. pace: least seconds from token to token, 0: as fast as it
    can.
    """

    way: str = HIGH
    pace: float = 0.0
    sentences: int = 1

    def __str__(self) -> str:
        many = "one sentence" if self.sentences == 1 else f"{self.sentences} sentences"
        paced = f", a token in {1000 * self.pace:g} ms" if self.pace else ""
        return f"{many}, {_LLM[self.way]}{paced}"


@dataclass(frozen=True)
class Row:
    """together: both processes run at the same time, by MPS; else in turns. llm: None while its
    process is idle. units: of the passes that are timed one after the other. service: passes go
    through the service over gRPC, instead of `units`."""

    together: bool
    llm: Decoding | None
    way: str = MEETING
    units: tuple[int, ...] = (ONE, COLD)
    service: bool = False

    @property
    def name(self) -> str:
        """Of its figures."""
        return f"{self.gpu}; {self.other}; {self.passes}"

    @property
    def gpu(self) -> str:
        return "together" if self.together else "in turns"

    @property
    def other(self) -> str:
        """What the speech-token model does."""
        return str(self.llm) if self.llm else "idle"

    @property
    def passes(self) -> str:
        """What is timed."""
        if self.service:
            return "over gRPC"
        return _PASSES[self.way] if self.units else "none"


_LLM = {
    HIGH: "high priority",
    NORMAL: "normal priority",
    EARLY: "high priority, kernels come at once",
    SEVERAL: "high priority, blocks of several",
}
_PASSES = {MEETING: "as served", APART: "a product a launch", AHEAD: "high priority"}

ROWS = (
    Row(False, None),
    Row(False, Decoding()),
    Row(True, None, service=True),
    *(Row(True, one, service=True) for one in (Decoding(), Decoding(NORMAL), Decoding(sentences=2), Decoding(EARLY))),
    Row(True, Decoding(), units=()),
    Row(True, Decoding(NORMAL), units=()),
    Row(True, None),
    Row(True, Decoding()),
    Row(True, Decoding(NORMAL)),
    Row(True, Decoding(pace=0.002)),
    Row(True, Decoding(pace=0.005)),
    Row(True, Decoding(sentences=2)),
    Row(True, Decoding(EARLY)),
    Row(True, Decoding(SEVERAL)),
    Row(True, None, APART, (ONE,)),
    Row(True, Decoding(), APART, (ONE,)),
    Row(True, Decoding(NORMAL), APART, (ONE,)),
    Row(True, Decoding(), AHEAD),
    Row(True, Decoding(NORMAL), AHEAD),
)
"""In the order in which they are measured; those over gRPC come first of theirs, while no other
process has programs that meet.
"""

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
