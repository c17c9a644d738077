"""Text work of many callers takes turns: one piece at a time, the next to the caller who has had
the least time.

A call's work runs on a thread of its own, which computes only while it holds a turn. Between two
pieces (a run of the normaliser, a window of the grammars) the work calls `give_way`, where the turn
may pass to another caller; a long text so delays a short one by a piece or two.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from cosyserve.errors import Overloaded

LEAST_SECONDS = 0.002
"""A turn that is shorter is not worth a change of threads."""
MOST_CALLS = 512
"""Callers whose work runs or waits, so threads at most; further ones are refused."""
_LONGEST_WAITING = 4
"""Every turn of this number goes to the caller who has waited longest, so that many short texts
cannot hold a long one up for good.
"""
_RETRY_SECONDS = 1.0
T = TypeVar("T")
_of_thread = threading.local()


class HungUp(Exception):
    """The caller is gone, and with it the reason for the work; raised in the thread of the work."""


class Caller:
    """One call. seconds: that its work has had and that count against it; what it was away for is
    taken off them.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.left: float | None = None
        """When its work was last over, on the clock of the turns."""
        self.hung_up = False
        self._granted = threading.Event()


class Turns:
    """workers: turns held at once. pool: has MOST_CALLS threads. now: seconds that only grow, as
    the thread of the work sees them; clock: the same for all threads."""

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
        """In the order in which they came."""
        self._working: set[Caller] = set()
        self._calls = 0
        self.granted = 0
        """Turns so far."""

    async def run(self, caller: Caller, work: Callable[[], T]) -> T:
        """What `work` gives, computed in turns. One piece of work of a caller at a time; when the
        awaiting task is cancelled, the work ends where it gives way next. Raises what `work`
        raises, Overloaded when too many calls are under way."""
        if self._calls >= MOST_CALLS:
            full = f"{self._calls} of {MOST_CALLS} texts are being read"
            raise Overloaded(f"{full}; try again in {_RETRY_SECONDS:g} s", retry_after=_RETRY_SECONDS)
        self._calls += 1
        done = asyncio.get_running_loop().run_in_executor(self._pool, self._work, caller, work)
        done.add_done_callback(self._over)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            self._hang_up(caller)
            raise

    def _over(self, done: "asyncio.Future[T]") -> None:
        self._calls -= 1
        if not done.cancelled():
            done.exception()  # of a caller who is gone

    def _work(self, caller: Caller, work: Callable[[], T]) -> T:
        self._take(caller)
        _of_thread.turn = _Turn(self, caller, self._now())
        try:
            return work()
        finally:
            turn, _of_thread.turn = _of_thread.turn, None
            self._end(turn)

    def _take(self, caller: Caller) -> None:
        """Wait for a turn. Raises HungUp."""
        with self._lock:
            if caller.left is not None:
                # A text that is still being written pauses for longer than its pieces take.
                caller.seconds = max(0.0, caller.seconds - (self._clock() - caller.left))
            self._enter(caller)
        self._wait(caller)

    def _enter(self, caller: Caller) -> None:
        caller._granted.clear()
        self._waiting.append(caller)
        self._grant()

    def _wait(self, caller: Caller) -> None:
        caller._granted.wait()
        if caller.hung_up:
            with self._lock:
                if caller in self._working:
                    self._leave(caller)
            raise HungUp

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

    def _pass_on(self, turn: "_Turn") -> None:
        """Between two pieces of the work of `turn`. Raises HungUp."""
        caller = turn.caller
        if caller.hung_up:
            raise HungUp
        if turn.begun is None or not self._waiting or (spent := self._now() - turn.begun) < self._least_seconds:
            return
        with self._lock:
            caller.seconds += spent
            self._working.discard(caller)
            self._free += 1
            self._enter(caller)
        turn.begun = None
        self._wait(caller)
        turn.begun = self._now()

    def _end(self, turn: "_Turn") -> None:
        if turn.begun is None:
            return  # hung up while it waited
        with self._lock:
            turn.caller.seconds += self._now() - turn.begun
            turn.caller.left = self._clock()
            self._leave(turn.caller)

    def _hang_up(self, caller: Caller) -> None:
        with self._lock:
            caller.hung_up = True
            if caller in self._waiting:
                self._waiting.remove(caller)
                caller._granted.set()


class _Turn:
    """Of one thread. begun: on the clock of the thread; None while it waits."""

    def __init__(self, turns: Turns, caller: Caller, begun: float) -> None:
        self.turns, self.caller = turns, caller
        self.begun: float | None = begun


def give_way() -> None:
    """Between two pieces of text work: the turn may pass to another caller. Without turns, as in a
    tool, it does nothing. Raises HungUp when the caller is gone."""
    turn: _Turn | None = getattr(_of_thread, "turn", None)
    if turn is not None:
        turn.turns._pass_on(turn)
