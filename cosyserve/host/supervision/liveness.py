"""Detects a frozen process: its port is open, but it no longer answers."""

import asyncio

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

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
"""Queries in a row without any answer before the process counts as frozen. Several rounds instead
of one time limit: after this process itself was stopped (Ctrl-Z, a laptop that sleeps) only the
open round has failed, and the next query is answered.
"""


async def until_silent(address: str, refusing_seconds: float) -> str:
    """Query the health of the process at `address` (host:port) until it stops answering; returns
    the observation, such as "gave no health answer for 8 s".

    Any state is an answer, and so is any status that the process sends. A process that refuses
    connections is draining, and gets `refusing_seconds` for that.
    """
    loop = asyncio.get_running_loop()
    async with grpc.aio.insecure_channel(
        address, options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    ) as channel:
        answers = _Answers(channel)
        silent = 0
        try:
            while True:
                heard, refused = answers.heard, answers.refused
                answers.ask()
                await asyncio.sleep(_ASK_SECONDS)
                since = loop.time() - answers.last
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
        self._loop = asyncio.get_running_loop()
        self.last = self._loop.time()
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
        asked = self._loop.time()
        try:
            await self._stub.Check(health_pb2.HealthCheckRequest(), timeout=SILENT_SECONDS)  # type: ignore[attr-defined]
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self.refused += 1
                return
            if (
                error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                and self._loop.time() - asked >= SILENT_SECONDS - _EARLY_SECONDS
            ):
                return
        self.heard += 1
        self.last = self._loop.time()
