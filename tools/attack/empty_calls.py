"""Calls that never send a message, fifty a second to speak and fifty a second to the health
service: is a tiny request answered, is the health, and does the process that answers stay the same?
A supervisor kills one that gives no health answer for eight seconds."""

import asyncio
import contextlib
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tools.attack.finding import Finding
from tools.attack.raw_http2 import RawConnection, connected
from tools.attack.target import DOOR, Target

_METHODS = (f"{DOOR}Synthesize", "/grpc.health.v1.Health/Check")
_A_SECOND, _SECONDS = 50, 12.0
_MOST_SECONDS, _MOST_HEALTH_SECONDS = 5.0, 2.0
_CHECK = health_pb2.HealthCheckRequest()


async def empty_calls(target: Target) -> Finding:
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as held:
        watched: Any = health_pb2_grpc.HealthStub(await held.enter_async_context(target.channel()))
        watch = watched.Watch(_CHECK)
        await watch.read()
        doors = [await held.enter_async_context(connected(target.address)) for _ in _METHODS]
        for door, method in zip(doors, _METHODS, strict=True):
            held.callback(asyncio.create_task(_call_on(door, method)).cancel)
        answers, waits = [], []
        begin = loop.time()
        while loop.time() - begin < _SECONDS:
            answers.append(await _health(target))
            waits.append(await target.tiny())
            await asyncio.sleep(0.5)
        # The call ends with its connection, and that with the process.
        same = not watch.done()
        watch.cancel()
    return Finding(
        f"health answered after {max(answers):.2f} s, {len(waits)} tiny requests after {max(waits):.2f} s at most, "
        f"{'the same process' if same else 'another process'} afterwards",
        f"{_MOST_HEALTH_SECONDS:.0f} s, {_MOST_SECONDS:.0f} s, the same",
        same and max(answers) <= _MOST_HEALTH_SECONDS and max(waits) <= _MOST_SECONDS,
    )


async def _call_on(door: RawConnection, method: str) -> None:
    await door.settled()
    while not door.closed.is_set():
        door.call(method)
        await asyncio.sleep(1 / _A_SECOND)


async def _health(target: Target) -> float:
    """Seconds until an answer over a connection of its own; infinite without one in time."""
    begin = asyncio.get_running_loop().time()
    async with target.channel() as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            await stub.Check(_CHECK, timeout=_MOST_HEALTH_SECONDS)
        except grpc.aio.AioRpcError:
            return float("inf")
    return asyncio.get_running_loop().time() - begin
