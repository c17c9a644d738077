"""The table that `verify` prints: one row per compared array."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Row:
    """One comparison. `error` is the largest absolute difference, NaN when nothing could be
    compared.
    """

    array: str
    error: float
    tolerance: float
    verdict: str
    """ok | FAIL | MISSING"""
    note: str = ""


class Report:
    """Collects rows; `ok` only if every one is within tolerance and nothing was left uncompared."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def compare(self, array: str, got: ArrayLike, want: ArrayLike, tolerance: float) -> None:
        """Add a row; a different shape or a non-finite value is a failure. Tolerance 0 asks for
        equality.
        """
        got, want = np.asarray(got), np.asarray(want)
        if got.shape != want.shape:
            self.rows.append(Row(array, float("nan"), tolerance, "FAIL", f"shape {got.shape}, expected {want.shape}"))
            return
        error = float(np.max(np.abs(got.astype(np.float64) - want.astype(np.float64)), initial=0.0))
        self.rows.append(Row(array, error, tolerance, "ok" if error <= tolerance else "FAIL"))

    def missing(self, array: str, reason: str) -> None:
        """Add a row for an array that could not be compared."""
        self.rows.append(Row(array, float("nan"), 0.0, "MISSING", reason))

    @property
    def ok(self) -> bool:
        return bool(self.rows) and all(row.verdict == "ok" for row in self.rows)

    def as_table(self) -> str:
        width = max((len(row.array) for row in self.rows), default=5)
        lines = [f"{'array':<{width}}  {'max abs error':>13}  {'tolerance':>9}  verdict"]
        lines += [
            f"{r.array:<{width}}  {r.error:>13.2e}  {r.tolerance:>9.1e}  {r.verdict} {r.note}".rstrip()
            for r in self.rows
        ]
        return "\n".join(lines)


def print_result(report: Report, lines: Sequence[str], *, as_json: bool) -> int:
    """Print the table, and `lines` that name the first differences; returns the exit status: 0 all
    within tolerance, 1 not.
    """
    content = {"ok": report.ok, "arrays": [asdict(row) for row in report.rows], "first_differences": lines}
    print(json.dumps(content, indent=1) if as_json else "\n".join([report.as_table(), *lines]))
    return 0 if report.ok else 1
