"""Time limits for calls that block and may never return, such as loading an engine whose library
waits for a process of its own.

A call runs in a thread that lives on after it, because the kernel ties some child processes to the
thread that started them; the thread does not keep this process from exiting. The thread of a call
that timed out is abandoned, since a thread cannot be stopped from outside.
"""

import logging
import multiprocessing
import queue
import threading
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")
_TERMINATE_SECONDS = 5.0


class CallTimedOut(Exception):
    """The call did not return in time."""


class _Call:
    """One call, its result, and whether the caller has stopped waiting."""

    def __init__(self, work: Callable[[], Any], discard: Callable[[Any], None]) -> None:
        self._work, self._discard = work, discard
        self._lock = threading.Lock()
        self._abandoned = False
        self.ended = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:  # the caller's to raise
            self.error = error
        with self._lock:
            self.ended.set()
            abandoned = self._abandoned
        if abandoned and self.error is None:
            self._discard(self.result)
        if abandoned:
            self.result = None

    def abandon(self) -> bool:
        """False if it has ended after all."""
        with self._lock:
            self._abandoned = not self.ended.is_set()
            return self._abandoned


class _Thread:
    """Runs calls one after the other until one of them is abandoned."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="loading", daemon=True).start()

    def put(self, call: _Call | None) -> None:
        self._calls.put(call)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call.run()
            except Exception:
                log.exception("what was loaded too late could not be released")
            del call


_idle: list[_Thread] = []
"""Threads without a call. There are as many in all as there were concurrent calls."""


def run_with_time_limit(seconds: float, work: Callable[[], T], discard: Callable[[T], None] = lambda result: None) -> T:
    """Run `work` in another thread and return its result; raises what it raises, and CallTimedOut
    after `seconds`. Blocks.

    discard: releases a result that comes later; called in that thread. Child processes that `work`
    started with `multiprocessing` are ended on a timeout: they would hold the memory of a device,
    and this process waits for them when it exits.
    """
    before = set(multiprocessing.active_children())
    call = _Call(work, discard)
    try:
        thread = _idle.pop()
    except IndexError:
        thread = _Thread()
    thread.put(call)
    if not call.ended.wait(seconds) and call.abandon():
        thread.put(None)
        _end_processes(started=[child for child in multiprocessing.active_children() if child not in before])
        raise CallTimedOut
    _idle.append(thread)
    result, error = call.result, call.error
    call.result = call.error = (
        None  # the thread still has the call, and an engine that is dropped has to be gone at once
    )
    if error is not None:
        try:
            raise error
        finally:
            del error
    return result  # type: ignore[no-any-return]


def _end_processes(started: Sequence[BaseProcess]) -> None:
    for process in started:
        process.terminate()
    for process in started:
        process.join(_TERMINATE_SECONDS)
        if process.is_alive():
            process.kill()
            process.join(_TERMINATE_SECONDS)
