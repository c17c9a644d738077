"""Fair scheduling of the text work of many callers: the next turn goes to the caller who has used
the least time.

The work of a call runs on its own thread, which computes only while it holds a turn. Between two
steps (a run of the normaliser, a grammar span) the work calls `yield_turn`, which may hand the turn
to another caller; so a long text delays a short one by one or two steps.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from cosyserve.errors import Overloaded
from cosyserve.metrics import names
from cosyserve.metrics.instruments import gauge

LEAST_SECONDS = 0.002
"""Seconds. A shorter turn is not worth a thread switch."""
MOST_CALLS = 512
"""Callers whose work runs or waits, and thus threads; further ones are refused."""
_LONGEST_WAITING = 4
"""Every n-th turn goes to the caller who has waited longest, so that many short texts cannot starve
a long one.
"""
_RETRY_SECONDS = 1.0
T = TypeVar("T")
_of_thread = threading.local()


class CallCancelled(Exception):
    """The call was cancelled; raised in the thread of its work."""


class Caller:
    """One call. seconds: computing time charged to it; idle time is deducted."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.left: float | None = None
        """When its work last ended, on the clock of the scheduler."""
        self.begun: float | None = None
        """When its turn began, on the clock of its thread; None while it waits."""
        self.cancelled = False
        self.waits_since = 0.0
        """When it last began to wait for a turn, on the clock of the scheduler."""
        self._granted = threading.Event()


class TextScheduler:
    """workers: concurrent turns. pool: has MOST_CALLS threads. now: CPU clock of the work's thread;
    clock: monotonic clock of all threads.
    """

    def __init__(
        self,
        pool: Executor,
        workers: int,
        *,
        least_seconds: float = LEAST_SECONDS,
        now: Callable[[], float] = time.thread_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers is {workers}, at least one turn must be held at once")
        self._pool, self._free = pool, workers
        self._least_seconds, self._now, self._clock = least_seconds, now, clock
        self._lock = threading.Lock()
        self._waiting: list[Caller] = []
        """In order of arrival."""
        self._working: set[Caller] = set()
        self._calls = 0
        self.granted = 0
        """Turns granted so far."""
        gauge(names.STREAMS_WAITING).watch(self, lambda scheduler: scheduler.waiting)
        gauge(names.QUEUE_AGE).watch(self, lambda scheduler: scheduler.longest_wait)

    @property
    def waiting(self) -> int:
        """Callers that wait for a turn. May be asked in any thread."""
        return len(self._waiting)

    @property
    def longest_wait(self) -> float:
        """Seconds for which the first of them has waited; 0: none waits."""
        with self._lock:
            return max((self._clock() - caller.waits_since for caller in self._waiting), default=0.0)

    async def run(self, caller: Caller, work: Callable[[], T]) -> T:
        """Return the result of `work`, computed in turns. One piece of work per caller at a time;
        when the awaiting task is cancelled, the work ends at its next step. Raises what `work`
        raises, and Overloaded when too many calls are under way.
        """
        if self._calls >= MOST_CALLS:
            raise Overloaded(
                f"{self._calls} of {MOST_CALLS} texts are being read; try again in {_RETRY_SECONDS:g} s",
                retry_after=_RETRY_SECONDS,
            )
        self._calls += 1
        done = asyncio.get_running_loop().run_in_executor(self._pool, self._work, caller, work)
        done.add_done_callback(self._over)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            self._cancel(caller)
            raise

    def _over(self, done: "asyncio.Future[T]") -> None:
        self._calls -= 1
        if not done.cancelled():
            done.exception()  # of a caller who is gone

    def _work(self, caller: Caller, work: Callable[[], T]) -> T:
        self._take(caller)
        caller.begun = self._now()
        _of_thread.turn = self, caller
        try:
            return work()
        finally:
            _of_thread.turn = None
            self._end(caller)

    def _take(self, caller: Caller) -> None:
        """Wait for a turn. Raises CallCancelled."""
        with self._lock:
            if caller.left is not None:
                # Pauses of a text that is still being written are longer than the computation of
                # its parts.
                caller.seconds = max(0.0, caller.seconds - (self._clock() - caller.left))
            self._enter(caller)
        self._wait(caller)

    def _enter(self, caller: Caller) -> None:
        caller._granted.clear()
        caller.waits_since = self._clock()
        self._waiting.append(caller)
        self._grant()

    def _wait(self, caller: Caller) -> None:
        caller._granted.wait()
        if caller.cancelled:
            with self._lock:
                if caller in self._working:
                    self._leave(caller)
            raise CallCancelled

    def _grant(self) -> None:
        while self._free and self._waiting:
            self.granted += 1
            patient = self.granted % _LONGEST_WAITING == 0
            chosen = self._waiting[0] if patient else min(self._waiting, key=lambda waiting: waiting.seconds)
            self._waiting.remove(chosen)
            self._working.add(chosen)
            self._free -= 1
            chosen._granted.set()

    def _leave(self, caller: Caller) -> None:
        self._working.discard(caller)
        self._free += 1
        self._grant()

    def _pass_on(self, caller: Caller) -> None:
        """Between two steps of the work of `caller`. Raises CallCancelled."""
        if caller.cancelled:
            raise CallCancelled
        if caller.begun is None or not self._waiting or (spent := self._now() - caller.begun) < self._least_seconds:
            return
        with self._lock:
            caller.seconds += spent
            self._working.discard(caller)
            self._free += 1
            self._enter(caller)
        caller.begun = None
        self._wait(caller)
        caller.begun = self._now()

    def _end(self, caller: Caller) -> None:
        if caller.begun is None:
            return  # hung up while it waited
        with self._lock:
            caller.seconds += self._now() - caller.begun
            caller.left = self._clock()
            self._leave(caller)

    def _cancel(self, caller: Caller) -> None:
        with self._lock:
            caller.cancelled = True
            if caller in self._waiting:
                self._waiting.remove(caller)
                caller._granted.set()


def yield_turn() -> None:
    """Mark the boundary between two steps of text work: the turn may pass to another caller.
    Without a scheduler, as in a tool, it does nothing. Raises CallCancelled when the call was
    cancelled.
    """
    turn: tuple[TextScheduler, Caller] | None = getattr(_of_thread, "turn", None)
    if turn is not None:
        scheduler, caller = turn
        scheduler._pass_on(caller)
