"""The stack under attack: where it answers, what its door holds, how an honest caller fares
meanwhile, and what an attack finds.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

import grpc
import psutil

from cosyserve.client import AsyncClient
from cosyserve.v1 import info_pb2, info_pb2_grpc

DOOR = "/cosyserve.v1.SynthesisService/"
HONEST_SECONDS = 60.0
"""A tiny request that takes longer has not been answered."""
LONGEST_TINY_SECONDS = 5.0
"""Allowed of a tiny request during an attack."""


@dataclass(frozen=True)
class Finding:
    """What an attack measured, and the limit that has to hold: in words, with figures. held:
    whether it does.
    """

    seen: str
    limit: str
    held: bool


@dataclass(frozen=True)
class Target:
    """address: host:port of the public door. door: process id of the orchestrator, None when it
    runs elsewhere. http, gateway: the same of the gateway; None: there is none to attack.
    """

    address: str
    door: int | None = None
    http: str | None = None
    gateway: int | None = None

    def at_gateway(self) -> "Target":
        """The gateway as the door. Raises ValueError without one."""
        if self.http is None:
            raise ValueError("there is no gateway; --http names one")
        return Target(self.http, self.gateway)

    async def tiny(self) -> float:
        """Seconds until the first audio of a tiny request over a connection of its own. Raises the
        error of cosyserve.errors that it gets, TimeoutError after a minute."""
        async with AsyncClient(self.address) as client:
            return await tiny(client)

    def resident(self) -> float:
        """Megabytes of memory that the door holds; 0 when it runs elsewhere."""
        return 0.0 if self.door is None else psutil.Process(self.door).memory_info().rss / 1e6

    async def places(self) -> tuple[int, int]:
        """Requests admitted at once, and those under way."""
        async with self.channel() as channel:
            stub: Any = info_pb2_grpc.InfoServiceStub(channel)
            info = (await stub.GetInfo(info_pb2.GetInfoRequest(), timeout=HONEST_SECONDS)).info
        return info.admitted_streams, info.active_streams

    async def until_idle(self) -> None:
        """Return when no request is under way. Raises TimeoutError after ten seconds."""
        async with asyncio.timeout(10.0):
            while (await self.places())[1]:  # noqa: ASYNC110 - nothing notifies of it
                await asyncio.sleep(0.1)

    @contextlib.asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        """A connection that no other channel shares."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        async with grpc.aio.insecure_channel(self.address, options=options) as channel:
            yield channel


async def tiny(client: AsyncClient) -> float:
    """As `Target.tiny`, over the connection of `client`."""
    begin = asyncio.get_running_loop().time()
    async with asyncio.timeout(HONEST_SECONDS), client.synthesize("Yes.", seed=1) as speech:
        await anext(speech)
        first = asyncio.get_running_loop().time() - begin
        await speech.read()
    return first


class Memory:
    """The most that the door holds while the block runs, beyond what it held before."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._before = target.resident()
        self.grown = 0.0
        """Megabytes."""

    async def __aenter__(self) -> "Memory":
        self._looking = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            self.grown = max(self.grown, self._target.resident() - self._before)
            await asyncio.sleep(0.05)

    def within(self, most: float, waited: float, seen: str = "", *, held: bool = True, also: str = "") -> Finding:
        """most: megabytes. waited: seconds of a tiny request meanwhile. seen, also: what else was
        measured and has to hold, in words; held: whether it does.
        """
        return Finding(
            f"{seen and f'{seen}; '}{self.grown:.0f} MB more held, a tiny request answered after {waited:.2f} s",
            f"{also}{most:.0f} MB, {LONGEST_TINY_SECONDS:.0f} s",
            held and self.grown <= most and waited <= LONGEST_TINY_SECONDS,
        )


@contextlib.asynccontextmanager
async def meanwhile(works: Iterable[Coroutine[Any, Any, object]]) -> AsyncIterator[None]:
    """They go on while the block does, and are cancelled at its end."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
