"""One process of several, as its parent sees it."""

import asyncio
import contextlib
import itertools
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from cosyserve.metrics.exposition import Family
from cosyserve.metrics.merged import from_json
from cosyserve.tasks import cancel_all
from services.orchestrator.load_control.entrance import Entrance
from services.orchestrator.processes.counted_calls import CallOf, CountedCalls
from services.orchestrator.processes.link import Link, Message
from services.orchestrator.processes.member import VARIABLE

log = logging.getLogger(__name__)
_MODULE = "services.orchestrator"
PING_SECONDS, SILENT_SECONDS = 1.5, 4.5
"""How often a process is asked whether it lives, and after which silence it is killed: before
those who watch over the whole service would kill all of it.
"""
_METRICS_SECONDS = 2.0


class Child:
    """A started process; create it with `start`. changed: called when `serving` or `calls` are not
    what they were.
    """

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, link: Link, changed: Callable[[], None]
    ) -> None:
        self.number, self.process = number, process
        self.joined, self.serving = False, False
        """Whether it has sent anything, and whether requests can be served there."""
        self.calls: dict[str, int] = {}
        """In progress, by caller."""
        self.families: list[Family] = []
        """Its metrics when they were read last."""
        self._link, self._changed = link, changed
        self._heard = asyncio.get_running_loop().time()
        self._numbers = itertools.count()
        self._reading: dict[int, asyncio.Future[list[Family]]] = {}

    @classmethod
    async def start(cls, number: int, environ: Mapping[str, str], changed: Callable[[], None]) -> "Child":
        """Start process `number` with this environment."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                _MODULE,
                pass_fds=[theirs.fileno()],
                env={**environ, VARIABLE: str(theirs.fileno())},
            )
        return cls(number, process, await Link.over(ours), changed)

    async def run(self, entrance: Entrance, call_of: CallOf, idle_seconds: float) -> int:
        """Answer the process until it has ended; returns its exit status. entrance, call_of,
        idle_seconds: as in `CountedCalls`. It is killed if it does not answer any more.
        """
        counted = CountedCalls(self._link, entrance, call_of, idle_seconds)
        tasks = [asyncio.create_task(self._listen(counted)), asyncio.create_task(self._watch())]
        try:
            return await self.process.wait()
        finally:
            await cancel_all(tasks)
            await counted.close()
            self._link.close()
            self.serving, self.calls = False, {}
            self._changed()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def tell(self, kind: str, /, **values: Any) -> None:
        """Send it a message."""
        self._link.send(kind, **values)

    async def read_metrics(self) -> list[Family]:
        """Its metrics now; those that were read last if it does not answer within two seconds."""
        if not self.joined:
            return self.families
        number, loop = next(self._numbers), asyncio.get_running_loop()
        self._reading[number] = loop.create_future()
        self._link.send("metrics", number=number)
        try:
            async with asyncio.timeout(_METRICS_SECONDS):
                self.families = await self._reading[number]
        except TimeoutError:
            log.warning("process %d does not say what it has counted", self.number)
        finally:
            del self._reading[number]
        return self.families

    async def _listen(self, counted: CountedCalls) -> None:
        async for message in self._link.messages():
            self.joined, self._heard = True, asyncio.get_running_loop().time()
            if message["is"] in CountedCalls.REQUESTS:
                counted.take(message)
            else:
                self._take(message)

    def _take(self, message: Message) -> None:
        kind = message["is"]
        if kind == "health":
            self.serving = message["serving"]
            self._changed()
        elif kind == "calls":
            self.calls = message["by_caller"]
            self._changed()
        elif kind == "metrics":
            reading = self._reading.get(message["number"])
            if reading is not None and not reading.done():
                reading.set_result(from_json(json.loads(message["families"])))

    async def _watch(self) -> None:
        """Kill it when it has joined and gives no answer any more."""
        loop = asyncio.get_running_loop()
        silent = 0
        while True:
            heard = self._heard
            self._link.send("ping")
            await asyncio.sleep(PING_SECONDS)
            # Rounds, not the clock alone: this process may have been stopped itself.
            silent = silent + 1 if heard == self._heard and self.joined else 0
            if silent >= round(SILENT_SECONDS / PING_SECONDS) and loop.time() - self._heard >= SILENT_SECONDS - 1:
                log.error("process %d gave no answer for %.0f s and is killed", self.number, SILENT_SECONDS)
                self.send(signal.SIGKILL)
                return
