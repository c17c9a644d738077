"""A line on standard error that says how far a long job is: redrawn on a terminal, now and then
elsewhere.
"""

import sys
import time
from types import TracebackType
from typing import Self, TextIO

_UNITS = ("B", "kB", "MB", "GB", "TB")


class Progress:
    """Counts bytes against a total. total: None while it is not known. label: what is worked on."""

    def __init__(self, label: str, total: int | None, *, done: int = 0, out: TextIO | None = None) -> None:
        self._label, self._total, self._done, self._out = label, total, done, out or sys.stderr
        self._terminal = self._out.isatty()
        self._began, self._before = time.monotonic(), done
        self._drawn = 0.0 if self._terminal else self._began

    def add(self, count: int) -> None:
        """`count` more bytes are done; a negative count takes back."""
        self._done += count
        now = time.monotonic()
        if now - self._drawn >= (0.1 if self._terminal else 10.0):
            self._drawn = now
            self._draw()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw()
        if self._terminal:
            self._out.write("\n")
            self._out.flush()

    def _draw(self) -> None:
        rate = (self._done - self._before) / max(1e-3, time.monotonic() - self._began)
        line = f"{self._label}  {in_units(self._done)}"
        if self._total:
            left = (self._total - self._done) / rate if rate > 0 else 0.0
            filled = min(20, 20 * self._done // self._total)
            bar = "#" * filled + "." * (20 - filled)
            line = f"{self._label}  [{bar}] {in_units(self._done)} of {in_units(self._total)}"
            line += f"  {in_units(rate)}/s, {left:.0f} s left" if self._done < self._total else f"  {in_units(rate)}/s"
        self._out.write(f"\r\x1b[K{line}" if self._terminal else f"{line}\n")
        self._out.flush()


class Step:
    """The phase of a long job, for jobs whose length in bytes is not known: the same line, redrawn
    or now and then.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out, self._count = out or sys.stderr, 0
        self._terminal = self._out.isatty()
        self._printed = 0.0 if self._terminal else time.monotonic()

    def now(self, what: str) -> None:
        """Another step begins."""
        self._count += 1
        now = time.monotonic()
        if self._terminal or now - self._printed >= 10.0:
            self._printed = now
            self._out.write(f"\r\x1b[K{self._count}  {what}" if self._terminal else f"{self._count}  {what}\n")
            self._out.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal and self._count:
            self._out.write("\r\x1b[K")
            self._out.flush()


def in_units(count: float) -> str:
    """Bytes as people read them: 1234567 is 1.2 MB."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"
