"""Clocks that cost no time: events run in order, and what waits or works for a while lets those
happen that lie in between. One is for a single server, one for several; for pods that come and go
there is `tools.capacity.timing.pod_clock`.
"""

import heapq
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


class VirtualClock:
    """A `services.token2wav.scheduling.measurements.Clock`. Everything happens in the thread that
    waits or works. on_end: called when nothing can happen any more although a coroutine waits.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._now = 0.0
        self._events: list[tuple[float, int]] = []
        self._calls: dict[int, Callable[[], None]] = {}
        """By number; one that was prevented is not here, and its entry in `_events` is skipped."""
        self._numbers = itertools.count()
        self._on_end = on_end

    def now(self) -> float:
        """Seconds since the start."""
        return self._now

    def after(self, seconds: float, event: Callable[[], None]) -> Callable[[], None]:
        """Let `event` happen in `seconds`; those of one moment happen in the order in which they
        were asked for. Returns what prevents it.
        """
        number = next(self._numbers)
        self._calls[number] = event
        heapq.heappush(self._events, (self._now + seconds, number))
        return lambda: self._forget(number)

    def _forget(self, number: int) -> None:
        self._calls.pop(number, None)

    @property
    def _next_at(self) -> float | None:
        """When the next event is due; None without one."""
        while self._events and self._events[0][1] not in self._calls:
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else None

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """Until the next event has happened or `seconds` are over."""
        at = self._next_at
        if at is not None and (seconds is None or at <= self._now + seconds):
            self._happen()
        elif seconds is None:
            self._on_end()
        else:
            self._now += seconds

    def work(self, seconds: float) -> None:
        """Be busy for `seconds`; events that are due in this time happen."""
        end = self._now + seconds
        while (at := self._next_at) is not None and at <= end:
            self._happen()
        self._now = end

    def _happen(self) -> None:
        at, number = heapq.heappop(self._events)
        self._now = max(self._now, at)
        self._calls.pop(number)()


@dataclass(eq=False)
class _Server:
    """until: when it goes on, None while nothing but an event can wake it. waits: an event may
    change what it waits for.
    """

    serve: Callable[[], None]
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    until: float | None = 0.0
    waits: bool = False
    over: bool = False


class VirtualServers(VirtualClock):
    """A `services.token2wav.scheduling.measurements.Clock` whose `wait` and `work` may be called by
    every server that `run` has started. Events happen in the thread that calls `run`, while no
    server runs. Servers and events of one moment follow each other in a fixed order, so that a run
    can be repeated.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        super().__init__(on_end)
        self._servers: list[_Server] = []
        self._present = threading.local()
        self._parked = threading.Semaphore(0)

    def run(self, servers: Sequence[Callable[[], None]]) -> None:
        """Let all of them serve, to their end."""
        self._servers = [_Server(serve) for serve in servers]
        threads = [threading.Thread(target=self._serve, args=(server,), daemon=True) for server in self._servers]
        for thread in threads:
            thread.start()
        while any(not server.over for server in self._servers):
            self._advance()
        for thread in threads:
            thread.join()

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """Until an event has happened or `seconds` are over."""
        changed.release()
        try:
            self._park(None if seconds is None else self._now + seconds, waits=True)
        finally:
            changed.acquire()

    def work(self, seconds: float) -> None:
        """Be busy for `seconds`, while the other servers and events go on."""
        self._park(self._now + seconds, waits=False)

    def _serve(self, server: _Server) -> None:
        self._present.server = server
        server.go.acquire()
        try:
            server.serve()
        finally:
            server.over = True
            self._parked.release()

    def _park(self, until: float | None, *, waits: bool) -> None:
        server: _Server = self._present.server
        server.until, server.waits = until, waits
        self._parked.release()
        server.go.acquire()

    def _advance(self) -> None:
        """Let the next server or event go on, a server until it waits or works again."""
        timed = [server for server in self._servers if not server.over and server.until is not None]
        server = min(timed, key=lambda one: one.until or 0.0, default=None)
        at = self._next_at
        if at is not None and (server is None or at <= (server.until or 0.0)):
            self._happen()
        elif server is not None:
            self._now = max(self._now, server.until or 0.0)
            self._resume(server)
            return
        else:
            self._on_end()
        for waiting in self._servers:
            if waiting.waits and not waiting.over:
                self._resume(waiting)

    def _resume(self, server: _Server) -> None:
        server.go.release()
        self._parked.acquire()
