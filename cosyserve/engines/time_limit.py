"""Time limits for calls that block and may never return, such as loading an engine whose library
waits for a process of its own.

A call runs in a thread that lives on after it, because the kernel ties some child processes to the
thread that started them; the thread does not keep this process from exiting. The thread of a call
that timed out is abandoned, since a thread cannot be stopped from outside.
"""

import multiprocessing
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

T = TypeVar("T")
_TERMINATE_SECONDS = 5.0


class CallTimedOut(Exception):
    """The call did not return in time."""


class _Thread:
    """Runs calls one after the other until one of them is abandoned."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        """None ends the thread."""
        threading.Thread(target=self._run, name="loading", daemon=True).start()

    def _run(self) -> None:
        while (call := self.calls.get()) is not None:
            result, work = call
            try:
                result.set_result(work())
            except BaseException as error:  # the caller raises it
                result.set_exception(error)
            # An engine that its user drops is gone at once.
            del call, result, work


_idle: list[_Thread] = []
"""Threads without a call. There are as many in all as there were concurrent calls."""


def run_with_time_limit(seconds: float, work: Callable[[], T], discard: Callable[[T], None] = lambda result: None) -> T:
    """Run `work` in another thread and return its result; raises what it raises, and CallTimedOut
    after `seconds`. Blocks.

    discard: releases a result that comes later; called in that thread, or in this one if the result
    comes at that moment. Child processes that `work` started with `multiprocessing` are ended on a
    timeout: they would hold the memory of a device, and this process waits for them when it exits.
    """
    before = set(multiprocessing.active_children())
    result: Future[T] = Future()
    try:
        thread = _idle.pop()
    except IndexError:
        thread = _Thread()
    thread.calls.put((result, work))
    if wait((result,), seconds).not_done:
        thread.calls.put(None)
        result.add_done_callback(lambda late: None if late.exception() else discard(late.result()))
        _end_processes(started=[child for child in multiprocessing.active_children() if child not in before])
        raise CallTimedOut
    _idle.append(thread)
    try:
        return result.result()
    finally:
        del result


def _end_processes(started: Sequence[BaseProcess]) -> None:
    for process in started:
        process.terminate()
    for process in started:
        process.join(_TERMINATE_SECONDS)
        if process.is_alive():
            process.kill()
            process.join(_TERMINATE_SECONDS)
