"""Reading and writing that may wait for ever, on a thread that a process which ends does not wait
for.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_daemon_thread(work: Callable[[], T], name: str) -> T:
    """What `work` returns or raises. To be cancelled here leaves it to itself, so it must hold no
    lock that the interpreter takes at its end."""
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
        # The loop may be gone: then nothing waits.
        if not loop.is_closed():
            loop.call_soon_threadsafe(give, result, failed)

    threading.Thread(target=run, daemon=True, name=name).start()
    return await done
