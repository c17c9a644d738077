"""A clock that costs no time for several servers, each in a thread of its own, of which one runs at
a time.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.token2wav_schedule.clock import VirtualClock


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
    """A `services.token2wav.scheduling.measurements.Clock` whose `wait` and `work` may be called by every
    server that `run` has started. Events happen in the thread that calls `run`, while no server
    runs. Servers and events of one moment follow each other in a fixed order, so that a run can be
    repeated."""

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
        if self._events and (server is None or self._events[0][0] <= (server.until or 0.0)):
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
