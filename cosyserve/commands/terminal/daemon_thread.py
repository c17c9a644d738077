"""Runs blocking reads and writes on a daemon thread, which does not delay the exit of the
process.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_daemon_thread(work: Callable[[], T], name: str) -> T:
    """Run `work` on a daemon thread and return its result. Cancelling this abandons the thread, so
    `work` must hold no lock that the interpreter takes at exit.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def give(result: T | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        failed: Exception | None = None
        try:
            result = work()
        except Exception as error:
            failed = error
        # If the loop is gone, no task waits.
        if not loop.is_closed():
            loop.call_soon_threadsafe(give, result, failed)

    threading.Thread(target=run, daemon=True, name=name).start()
    return await done
