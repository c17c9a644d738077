"""An attack with calls that never send a message: fifty new calls per second to `Synthesize` and
fifty to the health service, for twelve seconds.

Meanwhile the server has to answer health checks and tiny requests in time, and the orchestrator
process has to stay the same: the supervisor kills a process that answers no health check for eight
seconds.
"""

import asyncio
import contextlib
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tools.attack.raw_http2 import RawConnection, connected
from tools.attack.target import DOOR, Finding, Target

_METHODS = (f"{DOOR}Synthesize", "/grpc.health.v1.Health/Check")
_CALLS_PER_SECOND, _DURATION_SECONDS = 50, 12.0
_LONGEST_REQUEST_SECONDS, _LONGEST_HEALTH_SECONDS = 5.0, 2.0
_HEALTH_REQUEST = health_pb2.HealthCheckRequest()


async def empty_calls(target: Target) -> Finding:
    """Run the attack. Raises OSError when the server accepts no connection, and what `Target.tiny`
    raises.
    """
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        watch_stub: Any = health_pb2_grpc.HealthStub(await stack.enter_async_context(target.channel()))
        watch = watch_stub.Watch(_HEALTH_REQUEST)
        await watch.read()
        connections = [await stack.enter_async_context(connected(target.address)) for _ in _METHODS]
        for connection, method in zip(connections, _METHODS, strict=True):
            stack.callback(asyncio.create_task(_begin_calls(connection, method)).cancel)
        health_seconds, request_seconds = [], []
        begin = loop.time()
        while loop.time() - begin < _DURATION_SECONDS:
            health_seconds.append(await _health(target))
            request_seconds.append(await target.tiny())
            await asyncio.sleep(0.5)
        # The end of the process closes the connection of the Watch call, and with it the call.
        same_process = not watch.done()
        watch.cancel()
    return Finding(
        f"health answered after {max(health_seconds):.2f} s, "
        f"{len(request_seconds)} tiny requests after {max(request_seconds):.2f} s at most, "
        f"{'the same process' if same_process else 'another process'} afterwards",
        f"{_LONGEST_HEALTH_SECONDS:.0f} s, {_LONGEST_REQUEST_SECONDS:.0f} s, the same",
        same_process
        and max(health_seconds) <= _LONGEST_HEALTH_SECONDS
        and max(request_seconds) <= _LONGEST_REQUEST_SECONDS,
    )


async def _begin_calls(connection: RawConnection, method: str) -> None:
    """Begin calls of `method` that send headers only, until the server closes the connection."""
    await connection.settled()
    while not connection.closed.is_set():
        connection.call(method)
        await asyncio.sleep(1 / _CALLS_PER_SECOND)


async def _health(target: Target) -> float:
    """Seconds until a health check over a new connection is answered; infinity if the check fails
    or takes longer than `_LONGEST_HEALTH_SECONDS`.
    """
    begin = asyncio.get_running_loop().time()
    async with target.channel() as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            await stub.Check(_HEALTH_REQUEST, timeout=_LONGEST_HEALTH_SECONDS)
        except grpc.aio.AioRpcError:
            return float("inf")
    return asyncio.get_running_loop().time() - begin
