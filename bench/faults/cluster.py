"""The services as processes behind DNS names, several of each, as Kubernetes would run them: a
replica is in its name while it serves, and leaves the name before it is asked to end.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.faults.slow_link import SlowLink, slow_link
from cosyserve.host.supervision.child import Child, exit_text
from cosyserve.host.supervision.layout import GATEWAY, ORCHESTRATOR, STAGES, WITH_BACKEND, free_ports
from cosyserve.host.supervision.supervisor import DeploymentFailed
from tests.stacks.dns.name_server import NameServer, name_server

SERVICES = (*STAGES, ORCHESTRATOR, GATEWAY)
PRE_STOP_SECONDS = 5.0
"""Between leaving the name and SIGTERM, as in the chart."""
DRAIN_SECONDS = 60.0
_UNREADY_SECONDS = 1.0
"""After which the name of a killed process no longer has it."""
_START_SECONDS = 240.0
_LAST_NUMBER = 120


@dataclass(eq=False)
class Replica:
    """One process of a service. reached: its address in the name, if not its own."""

    service: str
    number: int
    port: int
    child: Child
    ended: "asyncio.Task[int]"
    reached: str = ""
    asked_to_end: bool = False

    @property
    def host(self) -> str:
        return f"127.0.0.{self.number}"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def label(self) -> str:
        return f"{self.service}.{self.number}"


@dataclass(eq=False)
class Cluster:
    """Create it with `cluster`. environ: of all processes. log: gets their output."""

    names: NameServer
    model: Path
    environ: Mapping[str, str]
    log: Callable[[str], None]
    ports: dict[str, int] = field(default_factory=dict)
    listed: dict[str, list[Replica]] = field(default_factory=lambda: {service: [] for service in SERVICES})
    """The replicas that each name has, the oldest first."""
    _all: list[Replica] = field(default_factory=list)
    _links: dict[str, SlowLink] = field(default_factory=dict)
    _exits: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    _numbers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SERVICES, 1))

    def target(self, service: str) -> str:
        """The gRPC target of all its replicas."""
        return self.names.target(f"{service}.test", self.ports[service])

    def addresses(self, service: str) -> list[str]:
        """host:port of those in the name."""
        return [f"{each.reached or each.host}:{each.port}" for each in self.listed[service]]

    async def add(self, service: str, count: int = 1) -> list[Replica]:
        """Start replicas, each at a new address, and put them into the name when all are ready."""
        started = []
        for _ in range(count):
            self._numbers[service] += 1
            if self._numbers[service] > _LAST_NUMBER:
                raise DeploymentFailed(f"{service} has had {_LAST_NUMBER} addresses; there are no more")
            started.append(await self._start(service, self._numbers[service]))
        await asyncio.gather(*(self._until_ready(replica) for replica in started))
        self.listed[service] += started
        self.publish(service)
        return started

    def publish(self, service: str) -> None:
        """Let the name have the addresses of the replicas that are listed."""
        self.names.records[f"{service}.test"] = [each.reached or each.host for each in self.listed[service]]

    async def remove(self, replica: Replica) -> None:
        """Its name loses it; it ends when its calls have ended. Raises DeploymentFailed if it ends
        with another status than 0."""
        self.listed[replica.service].remove(replica)
        self.publish(replica.service)
        await asyncio.sleep(PRE_STOP_SECONDS)
        replica.asked_to_end = True
        replica.child.send(signal.SIGTERM)
        code = await replica.ended
        self._all.remove(replica)
        if code:
            raise DeploymentFailed(f"{replica.label} {exit_text(code)} when it was asked to end")

    async def kill(self, replica: Replica) -> None:
        """SIGKILL; the process is started again at its address, as a container is in its pod.
        Returns when the name has it again."""
        service = replica.service
        place = self.listed[service].index(replica)
        replica.asked_to_end = True
        replica.child.send(signal.SIGKILL)
        await replica.ended
        self._all.remove(replica)
        again = await self._start(service, replica.number)
        await asyncio.sleep(_UNREADY_SECONDS)
        self.listed[service].remove(replica)
        self.publish(service)
        await self._until_ready(again)
        self.listed[service].insert(place, again)
        self.publish(service)

    async def link_to(self, replica: Replica) -> SlowLink:
        """A proxy to a replica, which stays until the end: calls that began through it end through
        it."""
        if replica.label not in self._links:
            link = slow_link(f"127.0.1.{replica.number}", replica.host, replica.port)
            self._links[replica.label] = await self._exits.enter_async_context(link)
        return self._links[replica.label]

    def require_alive(self) -> None:
        """Raise DeploymentFailed if a process has ended by itself."""
        for replica in self._all:
            if replica.ended.done() and not replica.asked_to_end:
                lines = "".join(f"\n  {line}" for line in replica.child.last_lines)
                raise DeploymentFailed(f"{replica.label} {exit_text(replica.ended.result())} by itself{lines}")

    async def close(self) -> None:
        """End every process at once."""
        await self._exits.aclose()
        for replica in self._all:
            replica.child.send(signal.SIGKILL)
        await asyncio.gather(*(replica.ended for replica in self._all))

    async def _start(self, service: str, number: int) -> Replica:
        prefix, port = f"COSYSERVE_{service.upper()}_", self.ports[service]
        address = f"127.0.0.{number}:{port}"
        own = {"LISTEN": address, "DRAIN_SECONDS": str(DRAIN_SECONDS)}
        if service == GATEWAY:
            own["ORCHESTRATOR"] = self.target(ORCHESTRATOR)
        elif service == ORCHESTRATOR:
            own |= {stage.upper(): self.target(stage) for stage in STAGES}
        else:
            own["MODEL"] = str(self.model.resolve())
        values = {**self.environ, **{prefix + name: value for name, value in own.items()}}
        label = f"{service}.{number}"
        child = await Child.start(f"services.{service}", label, address, values, self.log, http=service == GATEWAY)
        replica = Replica(service, number, port, child, asyncio.create_task(child.ended()))
        self._all.append(replica)
        return replica

    async def _until_ready(self, replica: Replica) -> None:
        ready = asyncio.create_task(_ready(replica))
        await asyncio.wait((ready, replica.ended), timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            lines = "".join(f"\n  {line}" for line in replica.child.last_lines)
            raise DeploymentFailed(f"{replica.label} did not start{lines}")


async def _ready(replica: Replica) -> None:
    await replica.child.until_serving()
    while replica.service == GATEWAY and not await _is_ready(replica):  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.1)


async def _is_ready(gateway: Replica) -> bool:
    """Whether it answers its readiness probe with 200."""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        try:
            writer.write(b"GET /readyz HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")
            return (await reader.readline()).startswith(b"HTTP/1.1 200")
        finally:
            writer.close()
    return False


def variables(backend: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of the processes: this one's without the settings of services, the backend of
    the engines, and `settings`."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COSYSERVE_")}
    engines = {f"COSYSERVE_{service.upper()}_BACKEND": backend for service in WITH_BACKEND}
    devices = {f"COSYSERVE_{service.upper()}_DEVICE": "cpu" for service in WITH_BACKEND}
    return {**plain, **engines, **devices, **settings}


@contextlib.asynccontextmanager
async def cluster(
    model: Path, replicas: Mapping[str, int], environ: Mapping[str, str], log: Callable[[str], None]
) -> AsyncIterator[Cluster]:
    """So many replicas of each service while the block runs, which begins when all are ready."""
    async with name_server() as names:
        names.ttl = 1
        whole = Cluster(names, model, environ, log, dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True)))
        try:
            waves: Sequence[Sequence[str]] = (STAGES, (ORCHESTRATOR,), (GATEWAY,))
            for wave in waves:
                await asyncio.gather(*(whole.add(service, replicas[service]) for service in wave))
            yield whole
        finally:
            await whole.close()
