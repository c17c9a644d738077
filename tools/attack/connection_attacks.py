"""Attacks by callers that hold connections and calls open: each measures what the server holds
meanwhile, and how long an honest caller waits.
"""

import asyncio
import contextlib
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve.client import AsyncClient
from cosyserve.errors import Overloaded
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tools.attack.raw_http2 import RawConnection, connected
from tools.attack.target import DOOR, LONGEST_TINY_SECONDS, Finding, Memory, Target, meanwhile, tiny


async def half_sent(target: Target) -> Finding:
    """Uploads of 21 MB of which the last kilobyte never comes: what is held of them, and does a
    tiny request get through?
    """
    calls, size = 40, 21_000_000
    # Eight messages of 22 MiB at once (MAX_INCOMING_MESSAGES), and as much again of calls that have
    # just lost their turn.
    most = 400.0
    body = bytes(size - 1_000)

    async def upload(connection: RawConnection) -> None:
        await connection.settled()
        await connection.send(connection.call(f"{DOOR}Synthesize"), body, announced=size, end=False)

    async with contextlib.AsyncExitStack() as held, Memory(target) as memory:
        connections = [await held.enter_async_context(connected(target.address)) for _ in range(8)]
        async with meanwhile(upload(connections[number % len(connections)]) for number in range(calls)):
            await asyncio.sleep(1.0)
            waited = await target.tiny()
            await asyncio.sleep(3.0)
    return memory.within(most, waited)


async def many_connections(target: Target) -> Finding:
    """More connections than a server needs to take: are some refused, and do callers that are
    connected go on?
    """
    tried, most = 600, 512
    async with AsyncClient(target.address) as before:
        await tiny(before)
        async with contextlib.AsyncExitStack() as held:
            connections = [await held.enter_async_context(connected(target.address)) for _ in range(tried)]
            await asyncio.gather(*(connection.settled() for connection in connections))
            taken = sum(not connection.closed.is_set() for connection in connections)
            waited = await tiny(before)
        begin = asyncio.get_running_loop().time()
        async with asyncio.timeout(LONGEST_TINY_SECONDS * 4), AsyncClient(target.address) as again:
            await again.synthesize("Yes.", seed=1, resumptions=100).read()
        returned = asyncio.get_running_loop().time() - begin
    return Finding(
        f"{taken} of {tried} taken, a connected caller answered after {waited:.2f} s, a new one afterwards "
        f"after {returned:.2f} s",
        f"{most} taken, {LONGEST_TINY_SECONDS:.0f} s",
        taken <= most and max(waited, returned) <= LONGEST_TINY_SECONDS,
    )


async def empty_streams(target: Target) -> Finding:
    """As many text streams as there are places, and more, on which only empty text comes: is a
    request that has text refused?
    """
    request = synthesis_pb2.StreamingSynthesizeRequest

    async def empty(call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        await call.write(request(setup=synthesis_pb2.StreamingSynthesizeSetup()))
        await call.initial_metadata()
        for _ in range(3):
            await call.write(request(text=""))

    places, _ = await target.places()
    async with target.channel() as channel:
        stub: Any = synthesis_pb2_grpc.SynthesisServiceStub(channel)
        calls = [stub.StreamingSynthesize() for _ in range(places + 4)]
        await asyncio.gather(*map(empty, calls), return_exceptions=True)
        waits = [await target.tiny() for _ in range(3)]
        left = sum(not call.done() for call in calls)
        for call in calls:
            call.cancel()
    await target.until_idle()
    return Finding(
        f"{len(calls)} streams for {places} places, {left} left; three requests answered after {max(waits):.2f} s at "
        "most",
        f"no refusal, {LONGEST_TINY_SECONDS:.0f} s",
        left <= places and max(waits) <= LONGEST_TINY_SECONDS,
    )


async def empty_calls(target: Target) -> Finding:
    """Calls that never send a message: fifty new ones per second to `Synthesize` and fifty to the
    health service, for twelve seconds.

    Meanwhile the server has to answer health checks and tiny requests in time, and the orchestrator
    process has to stay the same: the supervisor kills a process that answers no health check for
    eight seconds. Raises OSError when the server accepts no connection, and what `Target.tiny`
    raises.
    """
    loop, longest_health = asyncio.get_running_loop(), 2.0
    question = health_pb2.HealthCheckRequest()

    async def begin_calls(connection: RawConnection, method: str) -> None:
        """With headers only, until the server closes the connection."""
        await connection.settled()
        while not connection.closed.is_set():
            connection.call(method)
            await asyncio.sleep(1 / 50)

    async def health() -> float:
        """Seconds until a health check over a new connection is answered; infinity if it fails."""
        begin = loop.time()
        async with target.channel() as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            try:
                await stub.Check(question, timeout=longest_health)
            except grpc.aio.AioRpcError:
                return float("inf")
        return loop.time() - begin

    async with contextlib.AsyncExitStack() as stack:
        watch_stub: Any = health_pb2_grpc.HealthStub(await stack.enter_async_context(target.channel()))
        watch = watch_stub.Watch(question)
        await watch.read()
        for method in (f"{DOOR}Synthesize", "/grpc.health.v1.Health/Check"):
            connection = await stack.enter_async_context(connected(target.address))
            stack.callback(asyncio.create_task(begin_calls(connection, method)).cancel)
        health_seconds, request_seconds, begin = [], [], loop.time()
        while loop.time() - begin < 12.0:
            health_seconds.append(await health())
            request_seconds.append(await target.tiny())
            await asyncio.sleep(0.5)
        # The end of the process closes the connection of the Watch call, and with it the call.
        same_process = not watch.done()
        watch.cancel()
    return Finding(
        f"health answered after {max(health_seconds):.2f} s, "
        f"{len(request_seconds)} tiny requests after {max(request_seconds):.2f} s at most, "
        f"{'the same process' if same_process else 'another process'} afterwards",
        f"{longest_health:.0f} s, {LONGEST_TINY_SECONDS:.0f} s, the same",
        same_process and max(health_seconds) <= longest_health and max(request_seconds) <= LONGEST_TINY_SECONDS,
    )


async def hang_ups(target: Target) -> Finding:
    """Hundreds of calls that are cancelled as soon as they are made: is every place freed, and what
    stays in memory?
    """
    rounds, calls, most = 10, 50, 100.0
    request = synthesis_pb2.SynthesizeRequest(text="No caller waits for this sentence. " * 100)
    async with target.channel() as channel, Memory(target) as memory:
        stub: Any = synthesis_pb2_grpc.SynthesisServiceStub(channel)
        for number in range(rounds):
            begun = [stub.Synthesize(request) for _ in range(calls)]
            await asyncio.sleep(0.01 * number)
            for call in begun:
                call.cancel()
        await target.until_idle()
    return memory.within(most, await target.tiny(), f"{rounds * calls} calls, all places free")


async def never_reading(target: Target) -> Finding:
    """Callers of long texts that never read what they are answered: what is held of it, and is
    another caller answered?
    """
    most, longest = 200.0, 3.0
    places, _ = await target.places()
    request = synthesis_pb2.SynthesizeRequest(
        text="This sentence is heard by no caller at all. " * 400
    ).SerializeToString()
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as held, Memory(target) as memory:
        for _ in range(places):
            connection = await held.enter_async_context(connected(target.address))
            await connection.settled()
            await connection.send(connection.call(f"{DOOR}Synthesize"), request)
        await asyncio.sleep(3.0)
        begin = loop.time()
        try:
            await target.tiny()
            answer = "answered"
        except Overloaded as error:
            answer = f"refused, to come back in {error.retry_after or 0.0:.1f} s,"
        took = loop.time() - begin
    await target.until_idle()
    waited = await target.tiny()
    return Finding(
        f"{places} callers, {memory.grown:.0f} MB more held; a tiny request {answer} after {took:.2f} s, when they "
        f"were gone answered after {waited:.2f} s",
        f"{most:.0f} MB, {longest:.0f} s",
        memory.grown <= most and max(took, waited) <= longest,
    )
