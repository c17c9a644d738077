"""Processes behind two names come, leave, and are killed while two orchestrators speak through
them: no request fails, and each is heard as it would be undisturbed.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
import pytest

from cosyserve.client import AsyncClient
from cosyserve.errors import CosyserveError
from cosyserve.host.supervision.layout import free_ports
from cosyserve.rpc.server import running
from cosyserve.v1 import info_pb2, info_pb2_grpc
from services.frontend import __main__ as frontend
from services.frontend.settings import FrontendSettings
from tests.stacks.calls import until
from tests.stacks.dns.name_server import NameServer, name_server
from tests.stacks.in_process import HERE, orchestrated, until_serving
from tests.stacks.up_process import DEMO, ROOT, TINY

STAGES = ("llm", "token2wav")
TEXT = "The keeper of the lighthouse climbed the stairs. Then he lit the lamp, and wrote a few lines."
SEEDS = range(3)


class Processes:
    """Replicas of the stages with fake engines, each a process on 127.0.0.N; `behind` says which of
    them the names have.
    """

    def __init__(self, names: NameServer) -> None:
        self.names = names
        self.ports = dict(zip(STAGES, free_ports(len(STAGES)), strict=True))
        self.running: dict[tuple[str, int], asyncio.subprocess.Process] = {}

    def targets(self) -> dict[str, tuple[str, ...]]:
        """Settings of an orchestrator."""
        return {stage: (self.names.target(f"{stage}.test", port),) for stage, port in self.ports.items()}

    async def start(self, *numbers: int) -> None:
        """Start a process of each stage for each number; returns when all of them serve."""
        for stage in STAGES:
            for number in numbers:
                prefix = f"COSYSERVE_{stage.upper()}_"
                own = {"LISTEN": self.address(stage, number), "BACKEND": "fake", "MODEL": str(TINY)}
                plain = {name: value for name, value in os.environ.items() if not name.startswith("COSYSERVE_")}
                environ = (
                    plain | {prefix + name: value for name, value in own.items()} | {f"{prefix}DRAIN_SECONDS": "20"}
                )
                self.running[stage, number] = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", f"services.{stage}", cwd=ROOT, env=environ, stderr=asyncio.subprocess.DEVNULL
                )
        for stage in STAGES:
            for number in numbers:
                async with grpc.aio.insecure_channel(self.address(stage, number)) as channel:
                    await channel.channel_ready()
                    await until_serving(channel)

    def behind(self, *numbers: int) -> None:
        """From now on the names have these addresses."""
        for stage in STAGES:
            self.names.records[f"{stage}.test"] = [f"127.0.0.{number}" for number in numbers]

    def address(self, stage: str, number: int) -> str:
        return f"127.0.0.{number}:{self.ports[stage]}"

    async def end(self, number: int, how: signal.Signals) -> None:
        """End the processes of a number, and return when they have ended."""
        for stage in STAGES:
            self.running[stage, number].send_signal(how)
        for stage in STAGES:
            await self.running.pop((stage, number)).wait()

    async def close(self) -> None:
        for process in self.running.values():
            process.kill()
            await process.wait()


class Callers:
    """Speak without a pause, through one orchestrator after the other."""

    def __init__(self, clients: list[AsyncClient]) -> None:
        self.clients = clients
        self.expected: dict[int, bytes] = {}
        self.complete = 0
        self.faults: list[str] = []
        self._over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, count: int) -> None:
        self.expected = {seed: await self.clients[0].synthesize(TEXT, seed=seed).read() for seed in SEEDS}
        assert len(set(self.expected.values())) == len(SEEDS)
        self._tasks = [asyncio.create_task(self._speak(number)) for number in range(count)]

    async def _speak(self, number: int) -> None:
        client, seed = self.clients[number % len(self.clients)], SEEDS[number % len(SEEDS)]
        while not self._over:
            try:
                if await client.synthesize(TEXT, seed=seed).read() != self.expected[seed]:
                    self.faults.append("another sound")
            except CosyserveError as error:
                self.faults.append(f"{error.code.name}: {error.message}")
            self.complete += 1

    async def rounds(self, requests: int) -> None:
        """Return when so many more have been spoken."""
        wanted = self.complete + requests
        await until(lambda: self.complete >= wanted, 120)

    async def end(self) -> None:
        self._over = True
        await asyncio.gather(*self._tasks)


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    async with name_server() as names:
        found = Processes(names)
        try:
            yield found
        finally:
            await found.close()


async def serving_numbers(channel: grpc.aio.Channel) -> Counter[str]:
    """How many replicas of each stage an orchestrator reaches."""
    stub: Any = info_pb2_grpc.InfoServiceStub(channel)
    answer = await stub.GetInfo(info_pb2.GetInfoRequest())
    return Counter(one.service for one in answer.stages if one.ready)


async def test_no_request_fails_while_replicas_come_and_go(processes: Processes) -> None:
    await processes.start(2)
    processes.behind(2)
    text = FrontendSettings(listen=HERE, model=DEMO, drain_seconds=0.0)
    settings: dict[str, Any] = {**processes.targets(), "adaptive_limit": "off", "max_streams": 32}
    async with contextlib.AsyncExitStack() as exits:
        first = await exits.enter_async_context(running(frontend.SERVICE, text, partial(frontend.load, settings=text)))
        doors = [await exits.enter_async_context(orchestrated({"frontend": [first]}, **settings)) for _ in range(2)]
        clients = [await exits.enter_async_context(AsyncClient(f"127.0.0.1:{door.port}")) for door, _ in doors]

        async def known(replicas: int) -> None:
            """Both orchestrators reach so many replicas of both stages."""
            for _, channel in doors:
                while set((await serving_numbers(channel)).values()) != {1, replicas}:
                    await asyncio.sleep(0.05)

        callers = Callers(clients)
        await callers.start(6)
        await callers.rounds(6)
        # Two come.
        await processes.start(3, 4)
        processes.behind(2, 3, 4)
        await known(3)
        await callers.rounds(12)
        # One leaves as a pod does: its name loses it, and it drains.
        processes.behind(3, 4)
        await processes.end(2, signal.SIGTERM)
        await callers.rounds(12)
        # One is killed while its name still has it.
        await processes.end(3, signal.SIGKILL)
        await callers.rounds(12)
        processes.behind(4)
        await callers.rounds(6)
        # DNS fails while one more comes; it is used afterwards.
        processes.names.failure = "SERVFAIL"
        await processes.start(5)
        processes.behind(4, 5)
        await callers.rounds(6)
        processes.names.failure = ""
        await known(2)
        # The last of the first ones is killed, and is out of the name at the same time.
        processes.behind(5)
        await processes.end(4, signal.SIGKILL)
        await callers.rounds(12)
        await callers.end()
    assert callers.faults == []
    assert callers.complete > 60
