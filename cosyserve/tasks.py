"""Tasks of one event loop: change notification, and errors that no task awaits."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

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


async def unless_set(event: asyncio.Event, waiting: Coroutine[Any, Any, None]) -> None:
    """Wait for `waiting`. Raises CancelledError as soon as `event` is set."""
    tasks = asyncio.ensure_future(waiting), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    if event.is_set():
        raise asyncio.CancelledError
    await tasks[0]


async def cancel_all(tasks: "Collection[asyncio.Future[Any]]") -> None:
    """Cancel them, and return when they have ended, however they have."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def retrieve_error(future: "asyncio.Future[Any]") -> None:
    """Done callback of a future that may have no waiting task any more when it fails: asyncio does
    not log its error as one that was never retrieved.
    """
    if not future.cancelled():
        future.exception()
