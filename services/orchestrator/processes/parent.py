"""The process that starts the others: it counts the calls of all, watches the load of the stages,
starts again what has ended, and answers probes and scrapers for the whole service. It serves no
call itself.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from cosyserve import telemetry
from cosyserve.errors import SettingsError
from cosyserve.metrics import instruments, names, provider
from cosyserve.metrics.exposition import OPEN_METRICS, TEXT, Family, exposition, wants_open_metrics
from cosyserve.metrics.merged import counted, merged
from cosyserve.rpc.health_port import SERVING, HealthPort
from services.orchestrator.access.caller import Call, Caller
from services.orchestrator.access.callers import Budgets, LimitParts
from services.orchestrator.load_control.entrance import OwnEntrance
from services.orchestrator.processes.child import Child
from services.orchestrator.settings import PREFIX, OrchestratorSettings

log = logging.getLogger(__name__)
_FIRST_BACK_OFF_SECONDS, _LONGEST_BACK_OFF_SECONDS = 0.2, 10.0
_STEADY_SECONDS = 60.0
"""Of service, after which the restarts of a process are forgotten."""
_COUNTS_SECONDS = 0.03
_SETTINGS_STATUS = 2
_LAST_SECONDS = 8.0
"""What a process may take, besides its drain, to end: less than those who wait for all of them."""
FollowLoad = Callable[[OwnEntrance, OrchestratorSettings], Awaitable[Callable[[], Awaitable[None]]]]
"""Begins to follow the load of the stages, by which fewer requests are admitted; returns what to
call at the end.
"""


class Parent:
    """entrance: that counts the calls of all processes. address: host:port that they listen on."""

    def __init__(self, settings: OrchestratorSettings, entrance: OwnEntrance, address: str) -> None:
        self._settings, self._entrance, self._address = settings, entrance, address
        self._parts = LimitParts(settings.limit_parts, settings.limit_parts_name)
        self._budgets = Budgets(self._parts)
        self._children: dict[int, Child] = {}
        self._carried: list[Family] = []
        """What processes that have ended had counted."""
        self._said, self._saying = (0, 0), False
        self.stopping = asyncio.Event()
        self.status = 0
        """Exit status."""

    async def health(self) -> str:
        """SERVING while one of the processes serves, DRAINING, or NOT_SERVING."""
        if self.stopping.is_set():
            return "DRAINING"
        return SERVING if any(child.serving for child in self._children.values()) else "NOT_SERVING"

    async def families(self) -> list[Family]:
        """The metrics of the whole service."""
        own = [] if provider.Scraped.reader is None else await asyncio.to_thread(provider.Scraped.reader.families)
        carried = self._carried  # before they are asked: one that ends meanwhile counts once
        each = await asyncio.gather(*(child.read_metrics() for child in self._children.values()))
        return merged([own, *each, carried])

    async def run(self) -> None:
        """Keep all processes running until `stopping` is set, then drain them."""
        streams, watch_load = self._entrance.streams, self._entrance.streams.changed

        def changed() -> None:
            watch_load()
            self.say_counts()

        streams.changed, streams.limit_changed = changed, self.say_counts
        tasks = [asyncio.create_task(self._keep(number)) for number in range(self._settings.processes)]
        stopped = asyncio.create_task(self.stopping.wait())
        await asyncio.wait((stopped, *tasks), return_when=asyncio.FIRST_COMPLETED)
        self.stopping.set()
        log.info("the processes drain, at most %.0f s", self._settings.drain_seconds)
        for child in self._children.values():
            # One that has not joined has no calls, and may not handle the signal yet.
            child.send(signal.SIGTERM if child.joined else signal.SIGKILL)
        _, late = await asyncio.wait(tasks, timeout=self._settings.drain_seconds + _LAST_SECONDS)
        for child in self._children.values():
            child.send(signal.SIGKILL)
        if late:
            log.error("%d processes did not end in time and are killed", len(late))
        await asyncio.gather(*tasks)

    def say_counts(self) -> None:
        """Every process answers `GetInfo`, and browns out, by the counts of all, a moment later: a
        process whose call begins or ends knows at once.
        """
        if not self._saying:
            self._saying = True
            asyncio.get_running_loop().call_later(_COUNTS_SECONDS, self._say_counts)

    def _say_counts(self) -> None:
        self._saying = False
        streams = self._entrance.streams
        if (now := (streams.limit, streams.active)) != self._said:
            self._said = now
            for child in self._children.values():
                child.tell("counts", limit=now[0], active=now[1])

    async def _keep(self, number: int) -> None:
        """Run process `number`, again and again. Returns when the service is to end."""
        back_off, loop = _FIRST_BACK_OFF_SECONDS, asyncio.get_running_loop()
        while not self.stopping.is_set():
            begun = loop.time()
            child = await Child.start(number, self._environ(number), self._say_calls)
            self._children[number] = child
            if self.stopping.is_set():
                child.send(signal.SIGKILL)
            child.tell("counts", limit=self._entrance.streams.limit, active=self._entrance.streams.active)
            code = await child.run(self._entrance, self._call_of, self._settings.idle_seconds)
            del self._children[number]
            self._carried = merged([self._carried, counted(child.families)])
            if self.stopping.is_set():
                return
            if code == _SETTINGS_STATUS:
                self.status = code
                return
            if loop.time() - begun > _STEADY_SECONDS:
                back_off = _FIRST_BACK_OFF_SECONDS
            log.error("process %d ended with %d and is started again in %.1f s", number, code, back_off)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(back_off):
                    await self.stopping.wait()
            back_off = min(2 * back_off, _LONGEST_BACK_OFF_SECONDS)

    async def _call_of(self, caller: Caller) -> Call:
        await self._parts.refresh()
        return Call(caller, self._budgets.of(caller))

    def _say_calls(self) -> None:
        """The load that a process reports is that of the service."""
        total: Counter[str] = Counter()
        for child in self._children.values():
            total.update(child.calls)
        for child in self._children.values():
            child.tell(
                "calls", by_caller={who: calls for who in total if (calls := total[who] - child.calls.get(who, 0))}
            )

    def _environ(self, number: int) -> Mapping[str, str]:
        local = self._settings.local_listen
        changed = {
            "LISTEN": self._address,
            "RETRIES_PER_SECOND": repr(self._settings.retries_per_second / self._settings.processes),
            **({"LOCAL_LISTEN": local_socket(local, number)} if local else {}),
        }
        attributes = [os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""), f"service.instance.id={os.getpid()}.{number}"]
        return {
            **os.environ,
            **{f"{PREFIX}{name}": value for name, value in changed.items()},
            "OTEL_RESOURCE_ATTRIBUTES": ",".join(filter(None, attributes)),
        }


def local_socket(first: str, number: int) -> str:
    """The socket of process `number`: the first one has the name of the setting, the others their
    number behind it.
    """
    return f"{first}.{number}" if number else first


def run(
    settings: OrchestratorSettings, entrance: Callable[[OrchestratorSettings], OwnEntrance], follow: FollowLoad
) -> int:
    """Serve until SIGTERM; returns the exit status. entrance: makes that of the service."""
    telemetry.begin_log(settings.log_level)
    try:
        kept, address = reserve(settings.listen)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return _SETTINGS_STATUS
    with kept:
        return asyncio.run(_run(settings, entrance(settings), address, follow))


async def _run(settings: OrchestratorSettings, entrance: OwnEntrance, address: str, follow: FollowLoad) -> int:
    telemetry.configure(names.ORCHESTRATOR, scraped=bool(settings.health_listen))
    instruments.watch_tasks()
    loop = asyncio.get_running_loop()
    parent = Parent(settings, entrance, address)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, parent.stopping.set)

    def page(accept: str) -> tuple[str, bytes] | None:
        if provider.Scraped.reader is None:
            return None
        families = asyncio.run_coroutine_threadsafe(parent.families(), loop).result()
        open_metrics = wants_open_metrics(accept)
        body = exposition(families, names.ORCHESTRATOR, open_metrics=open_metrics)
        return OPEN_METRICS if open_metrics else TEXT, body

    probes = HealthPort(parent.health, page)
    close: Callable[[], Awaitable[None]] | None = None
    try:
        await probes.start(settings.health_listen)
        close = await follow(entrance, settings)
        log.info("%d processes serve %s", settings.processes, address)
        await parent.run()
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return _SETTINGS_STATUS
    finally:
        await probes.close()
        if close is not None:
            await close()
        await asyncio.to_thread(telemetry.shutdown)
    return parent.status


def reserve(address: str) -> tuple[socket.socket, str]:
    """A socket that keeps the port of `address` (host:port, port 0: a free one) for the processes
    of this one, and the address with its port. The socket does not listen. Raises SettingsError if
    the address is in use, or not to be listened on.
    """
    host, _, port = address.rpartition(":")
    try:
        family, *_, place = socket.getaddrinfo(host.strip("[]") or None, int(port), type=socket.SOCK_STREAM)[0]
        # A socket that shares its port could also be bound beside processes of another service.
        with socket.socket(family, socket.SOCK_STREAM) as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(place)
            if int(port) == 0:
                place = alone.getsockname()
        kept = socket.socket(family, socket.SOCK_STREAM)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(place)
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"listen is {address!r}, which cannot be listened on (in use, or not host:port): {error}"
        ) from error
    return kept, f"{host}:{kept.getsockname()[1]}"
