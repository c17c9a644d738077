"""An orchestrator of several processes behind one port is one service: its limits, counts and
metrics are those of all of them, and callers do not notice that one of them ends.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
import httpx2
import pytest

from cosyserve.client import AsyncClient
from cosyserve.errors import CosyserveError, LimitReached, Overloaded, Unavailable
from cosyserve.rpc.transport import OWN_CONNECTION
from cosyserve.v1 import info_pb2, info_pb2_grpc
from tests.contract.replicas.process_group import ProcessGroup, process_group
from tests.stacks.calls import until
from tests.stacks.gateway_server import gateway
from tests.stacks.key_holders import key_holder, keys_of
from tests.stacks.scripted_stages import Script, expected_audio

TEXT = "hello"
CONNECTIONS = 12
"""That all of them reach one of two processes happens once in two thousand runs."""


def held_script() -> tuple[Script, asyncio.Event]:
    """A script whose decoder stops in the middle of a sentence until the event is set."""
    go_on = asyncio.Event()

    async def decode(_: Any, samples: int) -> None:
        if samples >= 4 * 960:
            await go_on.wait()

    return Script(decode=decode), go_on


@contextlib.asynccontextmanager
async def clients_of(group: ProcessGroup, key: str = "") -> AsyncIterator[list[AsyncClient]]:
    """Each has a connection of its own."""
    async with contextlib.AsyncExitStack() as exits:
        yield [await exits.enter_async_context(AsyncClient(group.address, key)) for _ in range(CONNECTIONS)]


async def answer(client: AsyncClient) -> bytes | CosyserveError:
    try:
        return await client.synthesize(TEXT, seed=1, onset="natural").read()
    except CosyserveError as error:
        return error


async def infos(group: ProcessGroup, metadata: Any = ()) -> list[info_pb2.ServiceInfo]:
    """Asked over connections of their own."""
    found = []
    for _ in range(CONNECTIONS):
        async with grpc.aio.insecure_channel(group.address, options=[OWN_CONNECTION]) as channel:
            stub = cast("info_pb2_grpc.InfoServiceAsyncStub", info_pb2_grpc.InfoServiceStub(channel))
            found.append((await stub.GetInfo(info_pb2.GetInfoRequest(), metadata=metadata)).info)
    return found


async def until_places(group: ProcessGroup, places: tuple[int, int], metadata: Any = ()) -> None:
    """Whichever process is asked, so many requests are admitted and active; within a moment."""
    while {(one.admitted_streams, one.active_streams) for one in await infos(group, metadata)} != {places}:
        pass


async def metrics(group: ProcessGroup) -> dict[str, float]:
    async with httpx2.AsyncClient(timeout=20) as http:
        page = (await http.get(f"http://{group.probes}/metrics")).text
    lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in lines}


async def test_limits_and_counts_are_those_of_one_service() -> None:
    script, go_on = held_script()
    few, many = key_holder("few", limits={"concurrent": 2}), key_holder("many")
    settings = {"max_streams": 5, "keys": keys_of([few, many]), "share_wait_seconds": 0, "share_kept_seconds": 0}
    async with process_group(script, **settings) as group, clients_of(group, many.secret) as clients:
        limited = [asyncio.create_task(answer(client.with_key(few.secret))) for client in clients[:3]]
        await until(lambda: sum(task.done() for task in limited) == 1 and script.active == 2)
        asked = [asyncio.create_task(answer(client)) for client in clients[3:9]]
        await until(lambda: sum(task.done() for task in asked) == 3 and script.active == 5)
        await until_places(group, (5, 5), many.metadata)
        go_on.set()
        answers, limits = await asyncio.gather(*asked), await asyncio.gather(*limited)
        assert sorted(type(one).__name__ for one in limits) == ["LimitReached", "bytes", "bytes"]
        assert sum(one == expected_audio(TEXT) for one in [*answers, *limits]) == 5
        refused = [one for one in answers if isinstance(one, Overloaded) and not isinstance(one, LimitReached)]
        assert ["5 of 5 streams are in use" in one.message for one in refused] == [True] * 3
        # Every place is free as soon as its caller has its status.
        for round_of in (clients[:5], clients[5:10]):
            assert await asyncio.gather(*map(answer, round_of)) == [expected_audio(TEXT)] * 5
        counted, page = await metrics(group), 'service="orchestrator"'
        assert counted[f'cosyserve_requests_total{{{page},method="Synthesize",status="OK"}}'] == 15
        assert counted[f'cosyserve_refusals_total{{{page},limit="streams"}}'] == 3
        assert counted[f'cosyserve_refusals_total{{{page},limit="concurrency"}}'] == 1
        assert counted[f"cosyserve_streams_limit{{{page}}}"] == 5
        assert counted[f"cosyserve_streams_active{{{page}}}"] == 0
        assert counted[f'cosyserve_first_byte_seconds_count{{{page},method="Synthesize"}}'] == 15


async def test_a_killed_process_is_not_heard_and_sigterm_drains_all() -> None:
    script, go_on = held_script()
    async with (
        process_group(script, max_streams=2 * CONNECTIONS) as group,
        clients_of(group) as clients,
        gateway(",".join([group.address] * 8)) as served,
    ):
        body = {"model": "cosyserve", "input": TEXT, "response_format": "pcm", "seed": 1, "onset": "natural"}
        by_http = [asyncio.create_task(served.http.post("/v1/audio/speech", json=body)) for _ in range(CONNECTIONS)]
        asked = [asyncio.create_task(answer(client)) for client in clients]
        await until(lambda: script.active == 2 * CONNECTIONS)
        victim = group.members()[0]
        victim.kill()
        await until(lambda: len(group.members()) == 2 and victim not in group.members())
        go_on.set()
        assert await asyncio.gather(*asked) == [expected_audio(TEXT)] * CONNECTIONS
        assert [answer.content for answer in await asyncio.gather(*by_http)] == [expected_audio(TEXT)] * CONNECTIONS
        await until_places(group, (2 * CONNECTIONS, 0))
        go_on.clear()
        asked = [asyncio.create_task(answer(client)) for client in clients]
        await until(lambda: script.active == CONNECTIONS)
        group.program.send_signal(signal.SIGTERM)
        async with httpx2.AsyncClient(timeout=20) as http:
            await until(lambda: group.program.returncode is not None or script.active == CONNECTIONS)
            assert (await http.get(f"http://{group.probes}/readyz")).text == "DRAINING\n"
        go_on.set()
        assert await asyncio.gather(*asked) == [expected_audio(TEXT)] * CONNECTIONS
        assert await group.program.wait() == 0
        with pytest.raises(Unavailable):
            await clients[0].synthesize(TEXT).read()
