"""One process of several: what it asks its parent, and answers it."""

import asyncio
import json
import os
import socket
from typing import Any

from cosyserve.metrics import provider
from cosyserve.metrics.merged import to_json
from cosyserve.rpc.server import Service
from cosyserve.tasks import cancel_all
from services.orchestrator.processes.link import Link
from services.orchestrator.processes.shared_entrance import SharedEntrance

VARIABLE = "COSYSERVE_PROCESS_LINK"
"""Number of the open socket to the parent, in the environment of a process that has one."""
_CALLS_SECONDS = 0.1
"""Shortest time between two reports of the calls in progress."""
_ROUND_SECONDS, _SILENT_ROUNDS = 2.5, 4
"""After so many rounds without a message, of which there are more in each, the parent hangs."""


def is_member() -> bool:
    """Whether a parent started this process as one of several."""
    return VARIABLE in os.environ


class Member:
    """The service in this process, which ends when its parent has ended. Create it with `join`."""

    def __init__(self, service: Service, link: Link) -> None:
        self.entrance = SharedEntrance(link)
        self._service, self._link = service, link
        self._heard = 0
        self._answering: set[asyncio.Task[None]] = set()
        self._tasks = [
            asyncio.create_task(self._listen()),
            asyncio.create_task(self._report_calls()),
            asyncio.create_task(self._watch()),
        ]

    @classmethod
    async def join(cls, service: Service) -> "Member":
        """Take the link that the parent has left open."""
        return cls(service, await Link.over(socket.socket(fileno=int(os.environ[VARIABLE]))))

    def say_health(self, *, serving: bool) -> None:
        """Tell the parent whether requests can be served here."""
        self._link.send("health", serving=serving)

    async def close(self) -> None:
        """Leave."""
        await cancel_all([*self._tasks, *self._answering])
        self._link.close()

    async def _listen(self) -> None:
        async for message in self._link.messages():
            self._heard += 1
            kind = message["is"]
            if kind in SharedEntrance.ANSWERS:
                self.entrance.take(message)
            elif kind == "calls":
                self._service.calls.count_elsewhere(message["by_caller"])
            elif kind == "ping":
                self._link.send("pong")
            elif kind == "metrics":
                self._start(self._answer_metrics(message["number"]))
        self._give_up("the process that started this one has ended")

    async def _watch(self) -> None:
        """End with a parent that hangs: no call would be let in."""
        silent = 0
        while silent < _SILENT_ROUNDS:
            heard = self._heard
            await asyncio.sleep(_ROUND_SECONDS)
            silent = silent + 1 if heard == self._heard else 0
        self._give_up("the process that started this one gives no sign of life")

    def _give_up(self, reason: str) -> None:
        self.entrance.over()
        self._service.broken(reason)

    async def _report_calls(self) -> None:
        calls, last = self._service.calls, dict[str, int]()
        while True:
            now = calls.own()
            if now == last:
                await calls.changes.wait()
                continue
            self._link.send("calls", by_caller=now)
            last = now
            await asyncio.sleep(_CALLS_SECONDS)

    async def _answer_metrics(self, number: int) -> None:
        self._link.send("metrics", number=number, families=await asyncio.to_thread(_families))

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)


def _families() -> str:
    """In a thread: reading them blocks for some milliseconds."""
    reader = provider.Scraped.reader
    return json.dumps([] if reader is None else to_json(reader.families()))
