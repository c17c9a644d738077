"""How far a long measurement is, on standard error: a bar on a terminal, a line for each event
elsewhere.
"""

import shutil
import sys
import time
from typing import TextIO

WIDTH = 24


def bar(share: float) -> str:
    """share: 0 to 1, more is full."""
    full = int(WIDTH * min(max(share, 0.0), 1.0))
    return "#" * full + "." * (WIDTH - full)


class Progress:
    """parts: how many there are in all; those done before count."""

    def __init__(self, parts: int, done: int, stream: TextIO | None = None) -> None:
        self._parts, self._done = parts, done
        self._stream = stream or sys.stderr
        self._running: dict[str, tuple[float, float, str]] = {}
        self._shown = 0

    def begin(self, name: str, limit: float) -> None:
        self._running[name] = (time.monotonic(), limit, "")
        self._line(f"{name}: begun")

    def says(self, name: str, line: str) -> None:
        """The last line that a part printed."""
        begun, limit, _ = self._running[name]
        self._running[name] = (begun, limit, line)
        self.show()

    def end(self, name: str, state: str) -> None:
        begun, _, _ = self._running.pop(name)
        self._done += 1
        self._line(f"{name}: {state} after {time.monotonic() - begun:.0f} s ({self._done} of {self._parts} parts)")

    def left(self, name: str, why: str) -> None:
        """A part that is not begun."""
        self._done += 1
        self._line(f"{name}: left out, {why}")

    def show(self) -> None:
        """Redraw the bar."""
        if not self._stream.isatty():
            return
        names = []
        for name, (begun, limit, line) in self._running.items():
            passed = time.monotonic() - begun
            names.append(f"{name} {passed:.0f} s of at most {limit:.0f} [{bar(passed / limit)}] {line.strip()}")
        text = f"[{bar(self._done / self._parts if self._parts else 1.0)}] {'; '.join(names)}"
        # A line that wraps cannot be drawn over.
        text = text[: shutil.get_terminal_size().columns - 1]
        self._stream.write("\r" + text.ljust(self._shown))
        self._stream.flush()
        self._shown = len(text)

    def _line(self, text: str) -> None:
        if self._stream.isatty() and self._shown:
            self._stream.write("\r" + " " * self._shown + "\r")
            self._shown = 0
        self._stream.write(text + "\n")
        self._stream.flush()
        self.show()
