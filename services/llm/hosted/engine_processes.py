"""Detection of engine processes that end: a hosted library starts them while it loads, and one may
die while no run is in the engine.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from multiprocessing import active_children
from typing import TypeVar

T = TypeVar("T")


def load_with_processes(load: Callable[[], T]) -> tuple[T, tuple[int, ...]]:
    """The result of `load`, and the sentinels of the processes that it has started by
    `multiprocessing` and that are still alive: file descriptors that become readable when their
    process ends. Raises what `load` raises.
    """
    before = set(active_children())
    result = load()
    return result, tuple(process.sentinel for process in active_children() if process not in before)


class ProcessWatch:
    """Calls `on_end` on the event loop, once, as soon as one of the processes has ended. Create and
    stop it on the event loop.

    sentinels: duplicated here, since the library closes its own when it shuts down.
    """

    def __init__(self, sentinels: Iterable[int], on_end: Callable[[], None]) -> None:
        self._loop, self._on_end = asyncio.get_running_loop(), on_end
        self._watched: list[int] = []
        for sentinel in sentinels:
            descriptor = os.dup(sentinel)
            self._watched.append(descriptor)
            self._loop.add_reader(descriptor, self._ended)

    def stop(self) -> None:
        """Stop watching. Further calls do nothing."""
        while self._watched:
            descriptor = self._watched.pop()
            self._loop.remove_reader(descriptor)
            os.close(descriptor)

    def _ended(self) -> None:
        self.stop()
        self._on_end()
