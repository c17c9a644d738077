"""Whether a process that serves still answers: a frozen one has an open port and says nothing
more.
"""

import asyncio

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

SILENT_SECONDS = 8.0
"""A process that has given no health answer for this long counts as frozen, and so long is each
answer waited for: on a loaded machine it may take seconds. The orchestrator gives up a stage after
the same time."""
_ASK_SECONDS = 2.0
"""From one question to the next, be the one before answered or not."""
_EARLY_SECONDS = 0.05
"""A question's own deadline may end it by so much too soon."""
_ROUNDS = int(SILENT_SECONDS / _ASK_SECONDS) - 1
"""Questions in a row after each of which no answer has to come, to any. Several rounds and not one
deadline: after this process itself was stopped (Ctrl-Z, a laptop that sleeps) only the round that
was open then has passed, and the next question is answered."""


async def until_silent(address: str, refusing_seconds: float) -> str:
    """Ask the health of the process that listens at `address` (host:port) until it gives no more
    answers; returns what was seen, such as "gave no health answer for 8 s".

    Any state is an answer, and so is any status that the process sends. A process that refuses
    connections is draining, and is given `refusing_seconds` for that.
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
    """What has become of the questions to one process."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.heard, self.refused = 0, 0
        """How many were answered, and how many refused."""
        self._loop = asyncio.get_running_loop()
        self.last = self._loop.time()
        """When the last answer came, or all began."""
        self._stub = health_pb2_grpc.HealthStub(channel)
        self._open: set[asyncio.Task[None]] = set()

    def ask(self) -> None:
        question = asyncio.create_task(self._ask())
        self._open.add(question)
        question.add_done_callback(self._open.discard)

    async def close(self) -> None:
        """Give up the questions that are open."""
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
