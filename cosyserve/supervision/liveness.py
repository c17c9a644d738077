"""Whether a process that serves still answers: a frozen one has an open port and says nothing more."""

import asyncio

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

SILENT_SECONDS = 8.0
"""A process that has given no health answer for this long counts as frozen; the orchestrator gives up a stage after the same time."""
_ASK_SECONDS = 2.0
"""How long one question waits, and how long after an answer the next question is asked."""
_QUESTIONS = int(SILENT_SECONDS / _ASK_SECONDS) - 1
"""Questions in a row that have to stay unanswered. Several short ones and not a long one: after this process itself was stopped
(Ctrl-Z, a laptop that sleeps) only the question that was open then has run out, and the next one is answered."""


async def until_silent(address: str, refusing_seconds: float) -> str:
    """Ask the health of the process that listens at `address` (host:port) until it gives no more answers; returns what was seen, such as
    "gave no health answer for 8 s".

    Any state is an answer. A process that refuses connections is draining, and is given `refusing_seconds` for that.
    """
    loop = asyncio.get_running_loop()
    unanswered, answered = 0, loop.time()
    async with grpc.aio.insecure_channel(
        address, options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    ) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            try:
                await stub.Check(health_pb2.HealthCheckRequest(), timeout=_ASK_SECONDS)  # type: ignore[attr-defined]
                unanswered, answered = 0, loop.time()
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    unanswered += 1
                    if unanswered >= _QUESTIONS:
                        return f"gave no health answer for {SILENT_SECONDS:g} s"
                    continue
                unanswered = 0
                if loop.time() - answered > refusing_seconds:
                    return f"has refused connections for {refusing_seconds:g} s"
            await asyncio.sleep(_ASK_SECONDS)
