"""The gateway before scripted stages, in a thread of its own, and whether it comes to rest."""

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import httpx2

from tests.fuzz.transports import SECONDS
from tests.stacks.gateway_server import scripted_gateway
from tests.stacks.scripted_stages import Stack


class _Faults(logging.Handler):
    """What is logged as an error by the gateway, the servers behind it, or the event loop."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        # The callers of the fuzz run in this process, too, and report what they break.
        if record.name != "websockets.client" and not _of_a_closed_loop(record):
            self.records.append(logging.Formatter().format(record))


def _of_a_closed_loop(record: logging.LogRecord) -> bool:
    """gRPC hands events of all event loops of a process to the loops through one of them, here
    also what an earlier test left for a loop that is closed. The loop of the gateway runs.
    """
    error = record.exc_info[1] if record.exc_info else None
    return (
        "PollerCompletionQueue._handle_events" in record.getMessage()
        and isinstance(error, RuntimeError)
        and str(error) == "Event loop is closed"
    )


class GatewayThread:
    """address: of HTTP and WebSockets, host:port; wyoming: of Wyoming."""

    def __init__(self) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.wyoming = f"127.0.0.1:{listening.getsockname()[1]}"
        self._ready: Future[tuple[str, Stack]] = Future()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(listening),))
        self._thread.start()
        self.address, self._stack = self._ready.result(60)
        self._faults = _Faults()
        logging.getLogger().addHandler(self._faults)
        self.pace(0.0)
        self._http = httpx2.Client(base_url=f"http://{self.address}", timeout=SECONDS)
        self._require_answer()
        self._tasks_at_rest = self._tasks()

    async def _serve(self, listening: socket.socket) -> None:
        try:
            async with scripted_gateway(wyoming=listening) as (served, running):
                for script in _scripts(running):
                    script.timed = True
                self._ready.set_result((served.address, running))
                await self._over.wait()
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            raise

    def pace(self, seconds: float) -> None:
        """Let a piece of audio, 40 ms of speech, take so long."""

        async def wait(*_: Any) -> None:
            await asyncio.sleep(seconds)

        for script in self._stack.scripts["token2wav"]:
            script.decode = wait if seconds else None

    def close(self) -> None:
        logging.getLogger().removeHandler(self._faults)
        self._http.close()
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)
        self._loop.close()

    def require_rest(self) -> None:
        """Nothing works or waits for a caller who is gone, no fault is in the log, and another
        caller is answered.
        """
        self._until(lambda: not any(script.active for script in _scripts(self._stack)), "a stage works on")
        self._require_answer()
        self._until(lambda: len(self._tasks()) <= len(self._tasks_at_rest), "tasks are left")
        for script in _scripts(self._stack):
            for kept in (script.calls, script.text_setups, script.llm_setups, script.decode_setups):
                kept.clear()
        assert not self._faults.records, self._faults.records.pop()

    def _until(self, condition: Any, complaint: str) -> None:
        limit = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < limit, f"{complaint}: {sorted(self._others())}"
            time.sleep(0.005)

    def _require_answer(self) -> None:
        assert self._http.get("/v1/models").status_code == 200

    def _others(self) -> Counter[str]:
        """Tasks that there were not when nothing had been asked for."""
        return Counter(self._tasks()) - Counter(self._tasks_at_rest)

    def _tasks(self) -> list[str]:
        """The tasks of the event loop by what they run."""

        async def names() -> list[str]:
            return [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]

        return asyncio.run_coroutine_threadsafe(names(), self._loop).result(SECONDS)


def _scripts(stack: Stack) -> Iterator[Any]:
    return (script for replicas in stack.scripts.values() for script in replicas)


@contextlib.contextmanager
def gateway_thread() -> Iterator[GatewayThread]:
    running = GatewayThread()
    try:
        yield running
    finally:
        running.close()
