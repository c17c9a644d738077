"""A virtual clock for many servers that come and go: each is a thread, of which one runs at a time,
and an event wakes only the servers that it names.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tools.capacity.timing.clock import VirtualClock


@dataclass(eq=False)
class Server:
    """waits: an event may change what it waits for."""

    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    waits: bool = False
    over: bool = False


class PodClock(VirtualClock):
    """A `services.token2wav.scheduling.measurements.Clock` whose `wait` and `work` are called by
    the servers that were started. Events happen in the thread that calls `run`, while no server
    runs. Events of one moment follow each other in the order in which they were asked for, so a run
    can be repeated.
    """

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self._present = threading.local()
        self._parked = threading.Semaphore(0)
        self._servers: list[Server] = []
        self._woken: list[Server] = []
        self._fault: BaseException | None = None
        self._stopped = False

    def start(self, serve: Callable[[], None]) -> Server:
        """Let `serve` run in a thread of its own until it waits or works for the first time."""
        server = Server()
        self._servers = [one for one in self._servers if not one.over] + [server]
        threading.Thread(target=self._serve, args=(server, serve), daemon=True).start()
        self.after(0.0, lambda: self._resume(server))
        return server

    def wake(self, server: Server) -> None:
        """What the server waits for may have changed; it looks when the present event is over."""
        self._woken.append(server)

    def run(self, seconds: float) -> None:
        """Let everything happen that lies within the next `seconds`. Raises what a server raised."""
        end = self._now + seconds
        while (at := self._next_at) is not None and at <= end:
            self._happen()
            while self._woken:
                server = self._woken.pop(0)
                if server.waits:
                    self._resume(server)
            if self._fault is not None:
                raise self._fault
        self._now = end

    def close(self) -> None:
        """Time stands still from now on, and every server goes on to its end: waiting and working
        return at once. Each has to have been told to end.
        """
        self._stopped = True
        for server in self._servers:
            self._resume(server)

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        """Until the server is woken or `seconds` are over."""
        server: Server = self._present.server
        changed.release()
        prevent = None if seconds is None else self.after(seconds, lambda: self._resume(server))
        server.waits = True
        try:
            self._park(server)
        finally:
            server.waits = False
            if prevent is not None:
                prevent()
            changed.acquire()

    def work(self, seconds: float) -> None:
        """Be busy for `seconds`, while the other servers and events go on."""
        server: Server = self._present.server
        self.after(seconds, lambda: self._resume(server))
        self._park(server)

    def _serve(self, server: Server, serve: Callable[[], None]) -> None:
        self._present.server = server
        server.go.acquire()
        try:
            serve()
        except BaseException as error:
            self._fault = error
        finally:
            server.over = True
            self._parked.release()

    def _park(self, server: Server) -> None:
        if not self._stopped:
            self._parked.release()
            server.go.acquire()

    def _resume(self, server: Server) -> None:
        if not server.over:
            server.go.release()
            self._parked.acquire()
