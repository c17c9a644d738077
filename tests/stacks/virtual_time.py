"""Clocks of a test's own: one that it sets, and an event loop's, which jumps to the next timer, so
that seconds pass at once, and exactly.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass
class Clock:
    """Shows `now`, in seconds."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class _Selector(selectors.SelectSelector):
    """Does not wait; remembers for how long it should have."""

    waited = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("every task waits for another one")
        self.waited += max(timeout, 0.0)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Of tasks without sockets, threads and processes."""

    def __init__(self) -> None:
        self._selector_of_time = _Selector()
        super().__init__(self._selector_of_time)

    def time(self) -> float:
        return self._selector_of_time.waited


def run(main: Coroutine[Any, Any, T]) -> T:
    """The result of `main` in such a loop."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
