"""A line on standard error that says how far a long job is: redrawn on a terminal, now and then
elsewhere.
"""

import sys
import time
from types import TracebackType
from typing import Self

_UNITS = ("B", "kB", "MB", "GB", "TB")


class _Line:
    """A line that is redrawn on a terminal, and written again now and then elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._began = time.monotonic()
        self._drawn = 0.0 if self._terminal else self._began

    def __enter__(self) -> Self:
        return self

    def _due(self, redraw: float) -> bool:
        """Whether to draw now. redraw: seconds between two drawings on a terminal."""
        now = time.monotonic()
        due = now - self._drawn >= (redraw if self._terminal else 10.0)
        if due:
            self._drawn = now
        return due

    def _draw(self, line: str) -> None:
        print(f"\r\x1b[K{line}" if self._terminal else f"{line}\n", end="", file=sys.stderr, flush=True)


class Progress(_Line):
    """Counts bytes against a total. total: None while it is not known. label: what is worked on."""

    def __init__(self, label: str, total: int | None) -> None:
        super().__init__()
        self._label, self._total, self._done = label, total, 0

    def add(self, count: int) -> None:
        """`count` more bytes are done; a negative count takes back."""
        self._done += count
        if self._due(0.1):
            self._draw(self._text())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw(self._text() + ("\n" if self._terminal else ""))

    def _text(self) -> str:
        if not self._total:
            return f"{self._label}  {in_units(self._done)}"
        rate = self._done / max(1e-3, time.monotonic() - self._began)
        left = (self._total - self._done) / rate if rate > 0 else 0.0
        filled = min(20, 20 * self._done // self._total)
        bar = "#" * filled + "." * (20 - filled)
        line = f"{self._label}  [{bar}] {in_units(self._done)} of {in_units(self._total)}  {in_units(rate)}/s"
        return f"{line}, {left:.0f} s left" if self._done < self._total else line


class Step(_Line):
    """The phase of a long job, for jobs whose length in bytes is not known: the same line, redrawn
    or now and then.
    """

    _count = 0

    def now(self, what: str) -> None:
        """Another step begins."""
        self._count += 1
        if self._due(0.0):
            self._draw(f"{self._count}  {what}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal and self._count:
            self._draw("")


def in_units(count: float) -> str:
    """Bytes as people read them: 1234567 is 1.2 MB."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"
