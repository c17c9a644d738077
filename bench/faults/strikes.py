"""The faults: what happens to one replica of a service."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench.faults.cluster import SERVICES, Cluster

FREEZE_SECONDS = 10.0
DELAY_SECONDS = 6.0
_MOVED_SECONDS = 3.0
"""After which every caller uses the address that a name has now."""

Happens = Callable[[], None]
"""Called at the moment of the fault."""
Strike = Callable[[Cluster, str, Happens], Awaitable[None]]


async def kill(cluster: Cluster, service: str, happens: Happens) -> None:
    """SIGKILL to the first replica; it is started again."""
    happens()
    await cluster.kill(cluster.listed[service][0])


async def freeze(cluster: Cluster, service: str, happens: Happens) -> None:
    """SIGSTOP to the first replica for FREEZE_SECONDS; its name keeps it."""
    child = cluster.listed[service][0].child
    happens()
    child.send(signal.SIGSTOP)
    await asyncio.sleep(FREEZE_SECONDS)
    child.send(signal.SIGCONT)


def delay(milliseconds: int) -> Strike:
    """Every byte to and from the first replica is later by so much, for DELAY_SECONDS, also on
    connections that are open.
    """

    async def strike(cluster: Cluster, service: str, happens: Happens) -> None:
        replica = cluster.listed[service][0]
        link = await cluster.link_to(replica)
        replica.reached = link.listen
        cluster.publish(service)
        await asyncio.sleep(_MOVED_SECONDS)
        happens()
        link.delay = milliseconds / 1000
        await asyncio.sleep(DELAY_SECONDS)
        link.delay = 0.0
        replica.reached = ""
        cluster.publish(service)

    return strike


async def roll(cluster: Cluster, service: str, happens: Happens) -> None:
    """A replacement is started; when it is ready the first replica leaves its name, is asked to end
    and drains.
    """
    oldest = cluster.listed[service][0]
    await cluster.add(service)
    happens()
    await cluster.remove(oldest)


async def add(cluster: Cluster, service: str, happens: Happens) -> None:
    """One more replica."""
    await cluster.add(service)
    happens()


async def remove(cluster: Cluster, service: str, happens: Happens) -> None:
    """The first replica leaves its name, is asked to end and drains."""
    happens()
    await cluster.remove(cluster.listed[service][0])


STRIKES: dict[str, Strike] = {
    "kill": kill,
    "freeze": freeze,
    "delay 50 ms": delay(50),
    "delay 300 ms": delay(300),
    "roll": roll,
    "add": add,
    "remove": remove,
}
"""By name, in their order. `remove` takes back what `add` has added."""


@dataclass(frozen=True)
class Fault:
    """One row of the table; service: empty for the undisturbed control."""

    service: str
    kind: str


def all_faults(services: tuple[str, ...] = SERVICES, kinds: tuple[str, ...] = tuple(STRIKES)) -> list[Fault]:
    """One service after the other. The kinds `add` and `remove` belong together."""
    return [Fault(service, kind) for service in services for kind in STRIKES if kind in kinds]
