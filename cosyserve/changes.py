"""Change notification between the tasks of one event loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Changes:
    """As asyncio.Condition, without its lock: in one event loop a value cannot change between a
    look at it and the beginning of the wait.
    """

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def notify(self) -> None:
        """Something changed: wake all tasks that wait."""
        # A new event for the next change: each task that waits for the old one is woken exactly
        # once.
        changed, self._next = self._next, asyncio.Event()
        changed.set()

    async def wait(self) -> None:
        """Wait until the next change."""
        await self._next.wait()

    async def wait_for(self, predicate: Callable[[], T]) -> T:
        """Wait until `predicate`, called now and after each change, is true; returns its value."""
        while not (value := predicate()):
            await self._next.wait()
        return value
