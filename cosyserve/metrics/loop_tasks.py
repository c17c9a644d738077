"""How many tasks the event loop of this process has: one that is never over would show here."""

import asyncio

from cosyserve.metrics import names
from cosyserve.metrics.instruments import gauge


def watch() -> None:
    """Count the tasks of the running loop from now on, as long as it lives."""
    gauge(names.TASKS).watch(asyncio.get_running_loop(), lambda loop: len(asyncio.all_tasks(loop)))
