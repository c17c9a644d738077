"""An event loop in a thread of its own, for callers that have none."""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeVar, cast

from cosyserve.errors import Unavailable
from cosyserve.tasks import cancel_all

T = TypeVar("T")
_END = object()


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.stopped = False
        self._changes = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cosyserve-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of `coroutine`, which runs in the caller's context (so that its trace goes
        on). Whatever interrupts the wait, such as KeyboardInterrupt, cancels it."""
        with self._changes:
            if self.stopped:
                coroutine.close()
                raise Unavailable("the client is closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Unavailable("the call was closed while its result was awaited") from None
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """The result of a plain function that has to run where the loop runs."""

        async def called() -> T:
            return function()

        return self.run(called())

    def stop(self) -> None:
        """Cancel what still runs there, and end the thread."""
        with self._changes:  # so that nothing is started behind the cancellation
            self.stopped = True
            cancelled = asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop)
        cancelled.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel_all(self) -> None:
        await cancel_all([task for task in asyncio.all_tasks() if task is not asyncio.current_task()])
        await self._loop.shutdown_asyncgens()


async def arriving(fragments: Iterable[str]) -> AsyncIterator[str]:
    """The same fragments. A daemon thread asks the iterator, which may block for as long as it
    likes: it delays neither other streams nor the end of the program. An error of the iterator is
    raised here.
    """
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[object](maxsize=1)
    closed = threading.Event()

    def hand_over(item: object) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(item), loop).result()

    def iterate() -> None:
        # What ends the thread early: the stream or its loop is closed.
        with contextlib.suppress(RuntimeError, concurrent.futures.CancelledError):
            try:
                for fragment in fragments:
                    if closed.is_set():
                        return
                    hand_over(fragment)
            except Exception as error:
                hand_over(error)
            except BaseException as error:  # such as SystemExit, which may not end the loop
                hand_over(RuntimeError(f"the iterator of fragments ended with {error!r}"))
            else:
                hand_over(_END)

    threading.Thread(target=iterate, name="cosyserve-fragments", daemon=True).start()
    try:
        while (item := await queue.get()) is not _END:
            if isinstance(item, Exception):
                raise item
            yield cast(str, item)
    finally:
        closed.set()
        # A thread that waits for room would wait until the client is closed.
        while not queue.empty():
            queue.get_nowait()
