"""Runs all services of one machine as child processes: starts them together, watches them, restarts
those that end, and stops them cleanly.
"""

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosyserve.host.supervision.child import Child, exit_text, until_silent
from cosyserve.host.supervision.gpu_sharing import Report, shared_gpu, wanted_way
from cosyserve.host.supervision.layout import GATEWAY, ORCHESTRATOR, STAGES, ProcessSpec, lay_out
from cosyserve.model_directory import ModelDirectory

_MOST_RESTARTS = 5
"""Most restarts in a row."""
_STEADY_SECONDS = 60.0
"""Seconds of service after which the restarts of a process are forgotten."""
_FIRST_BACK_OFF_SECONDS = 0.5
_STOP_MARGIN_SECONDS = 10.0
"""An interpreter with a tensor library takes some seconds to exit on a busy machine."""


class DeploymentFailed(Exception):
    """The services cannot continue; the message names the one that ended, how, and its last
    output.
    """


@dataclass(frozen=True)
class Running:
    """State of one child process."""

    name: str
    replica: int
    pid: int
    port: int
    serving: bool


class LocalDeployment:
    """The services of one machine. Created by `local_deployment`."""

    def __init__(
        self,
        places: list[ProcessSpec],
        drain_seconds: float,
        log: Report,
        report: Report,
        *,
        restart_frozen: bool = True,
    ) -> None:
        self.address = [place.address for place in places if place.service != GATEWAY][-1]
        """host:port of the public service."""
        self.http = next((place.address for place in places if place.service == GATEWAY), None)
        """host:port of the gateway, if there is one."""
        self.plain = next((place.probed for place in places if place.service == ORCHESTRATOR), self.address)
        """Where this user reaches the public service without TLS: its address, or a socket."""
        self.secured = any(place.environ.get("COSYSERVE_ORCHESTRATOR_TLS_CERTIFICATE") for place in places)
        """Whether the public ports have TLS."""
        self._places = places
        self._drain_seconds = drain_seconds
        self._restart_frozen = restart_frozen
        self._log = log
        self._report = report
        self._children: dict[ProcessSpec, Child] = {}
        self._first_serving = {place: asyncio.Event() for place in places}
        self._supervisors: dict[ProcessSpec, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopped: asyncio.Task[None] | None = None

    @property
    def children(self) -> list[Running]:
        """The live processes."""
        return [
            Running(place.service, place.replica, child.process.pid, place.port, child.serving)
            for place, child in self._children.items()
            if child.process.returncode is None
        ]

    def kill(self, name: str, replica: int = 0, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one child, to simulate an accident. Raises KeyError if there is no such
        child.
        """
        children = {(place.service, place.replica): child for place, child in self._children.items()}
        children[name, replica].send(number)

    def kill_all(self) -> None:
        """End every child at once, without drain."""
        self._stopping.set()
        for child in self._children.values():
            child.send(signal.SIGKILL)

    async def wait(self) -> None:
        """Wait until the services cannot continue; raises DeploymentFailed then."""
        await asyncio.shield(self._failed)

    async def start(self) -> None:
        """Start all services and return when each has been SERVING. Raises DeploymentFailed as soon
        as one ends before.
        """
        for place in self._places:
            self._supervisors[place] = supervisor = asyncio.create_task(self._supervise(place))
            supervisor.add_done_callback(self._on_supervision_ended)
        serving = asyncio.create_task(self._all_serving())
        try:
            await asyncio.wait((serving, self._failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            serving.cancel()
        if self._failed.done():
            await self._failed

    async def stop(self) -> None:
        """Drain and end all services, callers before those they call; kill those that do not end in
        time. All are reaped on return.
        """
        if self._stopped is None:
            self._stopped = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopped)

    async def _all_serving(self) -> None:
        for event in self._first_serving.values():
            await event.wait()

    async def _stop(self) -> None:
        self._stopping.set()
        for services in ((GATEWAY,), (ORCHESTRATOR,), STAGES):
            wave = {task: place for place, task in self._supervisors.items() if place.service in services}
            for place in wave.values():
                if (child := self._children.get(place)) is not None:
                    # A loading process holds no accepted work and handles no signal before its load
                    # is over.
                    child.send(signal.SIGTERM if child.serving else signal.SIGKILL)
            if not wave:
                continue
            _, late = await asyncio.wait(wave, timeout=self._drain_seconds + _STOP_MARGIN_SECONDS)
            for place in (wave[task] for task in wave if task in late):
                self._report(f"{place.label} did not end in time and is killed")
                self._children[place].send(signal.SIGKILL)
            if late:
                await asyncio.wait(late)

    async def _supervise(self, place: ProcessSpec) -> None:
        """Run the service of `place` and restart it when it ends: up to `_MOST_RESTARTS` times in a
        row, with doubling delays.
        """
        restarts = 0
        while True:
            code, served_seconds = await self._run_once(place)
            if self._stopping.is_set():
                return
            end = f"{place.label} {exit_text(code)}{'' if served_seconds is not None else ' while loading'}"
            if not self._first_serving[place].is_set():
                raise DeploymentFailed(end + self._last_words(place))
            restarts = 1 if served_seconds is not None and served_seconds > _STEADY_SECONDS else restarts + 1
            if restarts > _MOST_RESTARTS:
                if not self._has_other_replica(place):
                    raise DeploymentFailed(f"{end}, {_MOST_RESTARTS} restarts did not help{self._last_words(place)}")
                self._report(
                    f"{end}, {_MOST_RESTARTS} restarts did not help; the other replicas of {place.service} go on "
                    "without it"
                )
                return
            delay = _FIRST_BACK_OFF_SECONDS * 2 ** (restarts - 1)
            serve = any(child.name == place.service and child.serving for child in self.children)
            meanwhile = "another replica lives" if serve else f"no other {place.service} serves"
            self._report(
                f"{end}; {meanwhile}, starting it again in {delay:.1f} s (restart {restarts} of at most "
                f"{_MOST_RESTARTS})"
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopping.wait()
                    return

    async def _run_once(self, place: ProcessSpec) -> tuple[int, float | None]:
        """Run one process once: its exit code, and for how many seconds it served, None if it never
        did. A process that has served and freezes is killed.
        """
        loop = asyncio.get_running_loop()
        begin = loop.time()
        child = await Child.start(
            f"services.{place.service}",
            place.label,
            place.probed,
            place.environ,
            self._log,
            http=place.service == GATEWAY,
        )
        self._children[place] = child
        if self._stopping.is_set():
            child.send(signal.SIGKILL)
        ended = asyncio.create_task(child.ended())
        serving = asyncio.create_task(child.until_serving())
        await asyncio.wait((ended, serving), return_when=asyncio.FIRST_COMPLETED)
        serving_since = loop.time()
        if child.serving:
            self._report(f"{place.label} serving after {serving_since - begin:.1f} s")
            self._first_serving[place].set()
            await self._watch(place, child, ended)
        elif serving.done():
            serving.result()
        serving.cancel()
        code = await ended
        return code, loop.time() - serving_since if child.serving else None

    async def _watch(self, place: ProcessSpec, child: Child, ended: "asyncio.Task[int]") -> None:
        """Return when `child` has ended or the services are being stopped; kill it if it stops
        answering and frozen processes are to be restarted.
        """
        judge = (
            until_silent(place.probed, self._drain_seconds + _STOP_MARGIN_SECONDS, http=child.http)
            if self._restart_frozen
            else asyncio.Event().wait()
        )
        silent = asyncio.create_task(judge)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((ended, silent, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            silent.cancel()
            stopping.cancel()
        if silent.done() and not silent.cancelled() and not ended.done() and not self._stopping.is_set():
            self._report(f"{place.label} {silent.result()} and is killed")
            child.send(signal.SIGKILL)

    def _last_words(self, place: ProcessSpec) -> str:
        said = "".join(f"\n  {line}" for line in self._children[place].last_lines)
        return f"; its last lines:{said}" if said else ""

    def _has_other_replica(self, place: ProcessSpec) -> bool:
        """Whether another replica of the same stage is still supervised, serving or not."""
        return any(
            not supervisor.done()
            for other, supervisor in self._supervisors.items()
            if other.service == place.service and other is not place
        )

    def _on_supervision_ended(self, supervisor: asyncio.Task[None]) -> None:
        error = None if supervisor.cancelled() else supervisor.exception()
        if error is None or self._failed.done():
            return
        self._failed.set_exception(error)
        self._failed.exception()  # retrieved, since no task has to wait for it
        self._stopped = self._stopped or asyncio.create_task(self._stop())


@contextlib.asynccontextmanager
async def local_deployment(
    model: Path,
    *,
    listen: str = "127.0.0.1:0",
    replicas: Mapping[str, int] | None = None,
    backend: str | Mapping[str, str] | None = "torch",
    device: str | None = None,
    devices: Mapping[str, Sequence[str]] | None = None,
    ports: Mapping[str, Sequence[int]] | None = None,
    http: str | None = None,
    environ: Mapping[str, str] | None = None,
    gpu_sharing: str | None = None,
    drain_seconds: float = 5.0,
    restart_frozen: bool = True,
    log: Report = lambda line: None,
    report: Report = lambda line: None,
) -> AsyncIterator[LocalDeployment]:
    """All services of `model` while the block runs; the block begins when the public service is
    SERVING.

    replicas: of each stage, such as {"token2wav": 2}; one by default. backend: of both engines, or
    {"llm": ..., "token2wav": ...}; None: as the environment says. devices, ports: of a stage, http:
    address of the gateway, as in `layout.lay_out`. environ: variables for all children.
    gpu_sharing: how engines share a GPU, auto or off (`gpu_sharing.shared_gpu`); None: as
    COSYSERVE_GPU_SHARING says, else auto. log: gets each output line of the children, with their
    name. report: gets events of the children. A process that ends, or gives no health answer for 8
    s, is restarted while the others continue; if five restarts in a row did not help and its stage
    has no other replica, all end and `LocalDeployment.wait` raises. restart_frozen: False does not
    restart a process that stops answering, for a debugger or a test that suspends it. Raises
    DeploymentFailed if a child ends while loading, ModelError without a model directory,
    SettingsError for the rest.
    """
    with tempfile.TemporaryDirectory(prefix="cosyserve-") as sockets:  # no other user may enter it
        engines = (replicas or {}, backend, device, drain_seconds, environ or {}, devices, ports, http, Path(sockets))
        # nvidia-smi may be asked.
        places = await asyncio.to_thread(lay_out, ModelDirectory(model).path, listen, *engines)
        async with shared_gpu(places, wanted_way(places[0].environ, gpu_sharing), report) as shared:
            stack = LocalDeployment(shared, drain_seconds, log, report, restart_frozen=restart_frozen)
            try:
                await stack.start()
                yield stack
            finally:
                await stack.stop()
