"""One service as a child process: its output line by line, its health, whether it is frozen, and
its end.
"""

import asyncio
import collections
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import cast

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve.host.supervision import process_health
from cosyserve.rpc.transport import channel_options

_CHANNEL_OPTIONS = channel_options(own_connection=True, longest_back_off=0.5)
_LINES_KEPT = 12
_LONGEST_LINE = 64 * 1024


class Child:
    """A started process. Create with `start`; call `ended` exactly once to reap it."""

    def __init__(
        self, label: str, address: str, process: asyncio.subprocess.Process, log: Callable[[str], None], *, http: bool
    ) -> None:
        self.label = label
        """Service name and replica number, e.g. llm.0."""
        self.address, self.http = address, http
        """host:port, and whether HTTP is served there; else gRPC."""
        self.process = process
        self.serving = False
        """Whether it has been SERVING: from then on it may hold accepted work."""
        self.last_lines: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self._log = log
        self._reading = asyncio.create_task(self._read(cast("asyncio.StreamReader", process.stdout)))

    @classmethod
    async def start(
        cls,
        module: str,
        label: str,
        address: str,
        environ: Mapping[str, str],
        log: Callable[[str], None],
        *,
        http: bool = False,
    ) -> "Child":
        """Run `python -m module`; `log` gets each line it prints.

        Its own process group keeps a Ctrl-C at the terminal from reaching it: only the parent
        decides when it stops.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "cosyserve.host.supervision.die_with_parent",
            module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**environ, "PYTHONUNBUFFERED": "1"},
            limit=_LONGEST_LINE,
            process_group=0,
        )
        return cls(label, address, process, log, http=http)

    async def until_serving(self) -> None:
        """Return when its health turns SERVING, or it answers in HTTP; never, if it does not."""
        if self.http:
            await process_health.until_answered(self.address)
            self.serving = True
            return
        async with grpc.aio.insecure_channel(self.address, options=_CHANNEL_OPTIONS) as channel:
            while True:
                watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)  # type: ignore[attr-defined]
                with contextlib.suppress(grpc.aio.AioRpcError):
                    async for answer in watch:
                        if answer.status == health_pb2.HealthCheckResponse.SERVING:
                            self.serving = True
                            return
                # The connection broke, most likely because the process died, which its exit code
                # will show; this only limits how often it is queried.
                await asyncio.sleep(0.2)

    async def ended(self) -> int:
        """Wait for the end of the process and of its output, and kill its remaining child
        processes: an engine process would hold GPU and output for ever. Returns the exit code,
        negative for a signal.
        """
        await _exit(self.process)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = await self.process.wait()
        cast("asyncio.StreamWriter", self.process.stdin).close()
        await self._reading
        return code

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def _read(self, output: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await output.readline()
            except ValueError:  # longer than the limit; the reader has dropped it
                line = b"(a line too long to show)\n"
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            self.last_lines.append(text)
            self._log(f"{self.label:<14} | {text}")


async def _exit(process: asyncio.subprocess.Process) -> None:
    """Return when the process has ended; `Process.wait` also waits for other processes that hold
    its output.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not on this system
        await process.wait()
        return
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def exit_text(code: int) -> str:
    """An exit code in words, e.g. "exited with code 3" or "was killed by SIGKILL"."""
    return f"exited with code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"


SILENT_SECONDS = 8.0
"""Seconds without a health answer after which a process counts as frozen, and the time limit of
each answer: on a loaded machine it may take seconds. The orchestrator gives up a stage after about
the same time.
"""
_ASK_SECONDS = 2.0
"""Seconds between two queries, whether or not the previous one was answered."""
_EARLY_SECONDS = 0.05
"""Tolerance in seconds for the time limit of a query."""
_ROUNDS = int(SILENT_SECONDS / _ASK_SECONDS) - 1
"""Queries in a row without any answer before the process counts as frozen."""


async def until_silent(address: str, refusing_seconds: float, *, http: bool = False) -> str:
    """Query the health of the process at `address` (host:port) until it stops answering; returns
    the observation, such as "gave no health answer for 8 s".

    Any state is an answer, and so is any status that the process sends. A process that refuses
    connections is draining, and gets `refusing_seconds` for that. When this process itself was
    late, as after a laptop has slept or a virtual machine stood still, the other one may have stood
    still as well, and counting begins again. http: it is asked in HTTP.
    """
    if http:
        return await process_health.until_silent(address, SILENT_SECONDS, refusing_seconds)
    async with grpc.aio.insecure_channel(
        address, options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    ) as channel:
        answers = _Answers(channel)
        silent = 0
        try:
            while True:
                heard, refused = answers.heard, answers.refused
                answers.ask()
                due = time.monotonic() + _ASK_SECONDS
                await asyncio.sleep(_ASK_SECONDS)
                if time.monotonic() - due > process_health.LATE_SECONDS:
                    silent, answers.last = 0, time.monotonic()
                    continue
                since = time.monotonic() - answers.last
                silent = silent + 1 if (heard, refused) == (answers.heard, answers.refused) else 0
                if silent >= _ROUNDS and since >= SILENT_SECONDS - _ASK_SECONDS - _EARLY_SECONDS:
                    return f"gave no health answer for {SILENT_SECONDS:g} s"
                if answers.refused > refused and since > refusing_seconds:
                    return f"has refused connections for {refusing_seconds:g} s"
        finally:
            await answers.close()


class _Answers:
    """The queries to one process and their results."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.heard, self.refused = 0, 0
        """Number of answered and of refused queries."""
        self.last = time.monotonic()
        """Time of the last answer, or of the start."""
        self._stub = health_pb2_grpc.HealthStub(channel)
        self._open: set[asyncio.Task[None]] = set()

    def ask(self) -> None:
        question = asyncio.create_task(self._ask())
        self._open.add(question)
        question.add_done_callback(self._open.discard)

    async def close(self) -> None:
        """Cancel the open queries."""
        for question in self._open:
            question.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _ask(self) -> None:
        asked = time.monotonic()
        try:
            await self._stub.Check(health_pb2.HealthCheckRequest(), timeout=SILENT_SECONDS)  # type: ignore[attr-defined]
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self.refused += 1
                return
            in_time = time.monotonic() - asked < SILENT_SECONDS - _EARLY_SECONDS
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not in_time:
                return
        self.heard += 1
        self.last = time.monotonic()
