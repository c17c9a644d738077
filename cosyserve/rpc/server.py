"""Runs a gRPC service: health, reflection, errors as status, traces, limits, drain on SIGTERM.

The port answers from the start: until `load` has returned, health is NOT_SERVING and every other
call fails with UNAVAILABLE. As a process (`run`) it has its settings from the environment, writes
one line to stderr if it cannot start, and exits with 0 when it has drained, 1 if the engine broke
while serving, 2 because of the settings, 3 because of the model directory, 4 because its GPU is
lost.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from cosyserve import settings as environment
from cosyserve import telemetry
from cosyserve.engines.device_loss import EXIT_STATUS, LossReason
from cosyserve.engines.start_phases import phase, process_age
from cosyserve.errors import ModelError, SettingsError
from cosyserve.metrics import instruments, names
from cosyserve.rpc import process_end, reflection
from cosyserve.rpc.first_message import FirstMessageInterceptor
from cosyserve.rpc.health_port import HealthPort
from cosyserve.rpc.interceptors import EdgeInterceptor
from cosyserve.rpc.load.reported import CallCounts
from cosyserve.rpc.method_table import Handlers
from cosyserve.rpc.records.counted_calls import CountedCalls
from cosyserve.rpc.server_settings import ServerSettings
from cosyserve.rpc.service_info import NAME as INFO
from cosyserve.rpc.service_info import InfoServicer
from cosyserve.rpc.tls.ports import AllowedCallers, listen
from cosyserve.rpc.transport import server_options
from cosyserve.v1 import info_pb2_grpc

log = logging.getLogger(__name__)
Close = Callable[[], Awaitable[None]]
_BROKEN_CLOSE_SECONDS = 5.0
_LONGER_THAN_DRAIN = 5.0
_NOTICE_SECONDS = 0.5
"""How long the port still refuses new calls properly, for clients that have not seen the shutdown
yet.
"""


class StoppedWhileLoading(Exception):
    """The process was asked to end while its engine was loading, which cannot be interrupted from
    inside.
    """


class ServiceBroken(Exception):
    """The engine is beyond repair and the process has to end."""


class DeviceBroken(ServiceBroken):
    """The GPU is lost to this process. CUDA may hang when the process ends in the usual way."""


class Service:
    """A running service: where it listens, its method table and its health."""

    def __init__(
        self,
        names: list[str],
        port: int,
        handlers: Handlers,
        checks: health.aio.HealthServicer,
        peers: Sequence[str],
        calls: CallCounts,
    ) -> None:
        """Create it inside the event loop that serves. peers: networks whose hosts may start a
        warm-up. calls: the calls in progress, which it reports as its load.
        """
        self.name = names[0]
        """Full protobuf name, e.g. cosyserve.v1.LlmService."""
        self.names = names
        """It, and further services that `load` adds: reflection lists them; their health is its."""
        self.port = port
        self.handlers = handlers
        self.calls = calls
        """The calls in progress."""
        self.info = InfoServicer(self.name, peers, calls)
        """Servicer of InfoService; `load` sets its facts."""
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Set with the reason if the service cannot continue."""
        self.health_port: int | None = None
        """Port of the probes in HTTP, None if there is none."""
        self._health = "NOT_SERVING"
        self._leaving = False
        self._checks = checks
        self._loop = asyncio.get_running_loop()

    def broken(self, reason: str) -> None:
        """Report that the engine is beyond repair: turn NOT_SERVING and let `serve` end the
        process, so that a supervisor starts a new one. From any thread, more than once, too.
        """
        self._loop.call_soon_threadsafe(self._give_up, reason)

    def _give_up(self, reason: str) -> None:
        if not self.over.done():
            log.critical("%s cannot go on: %s", self.name, reason)
            self.over.set_result(reason)

    async def published_health(self) -> str:
        """SERVING, NOT_SERVING, or DRAINING once the service leaves."""
        return "DRAINING" if self._leaving else self._health

    async def set_serving(self, serving: bool) -> None:
        """Publish health for the service and for the whole server."""
        self._health = "SERVING" if serving else "NOT_SERVING"
        status = health_pb2.HealthCheckResponse.ServingStatus.Value(self._health)
        for name in ("", *self.names):
            await self._checks.set(name, status)

    async def leave(self) -> None:
        """Publish NOT_SERVING for good."""
        self._leaving = True
        await self._checks.enter_graceful_shutdown()


Gate = grpc.aio.ServerInterceptor | None
Load = Callable[[Service], Awaitable[Close]]
"""Loads the engine and adds servicers to `service.handlers`; returns what to call at the end."""


@contextlib.asynccontextmanager
async def running(
    name: str, settings: ServerSettings, load: Load, *, owns_health: bool = False, gate: Gate = None, parts: int = 1
) -> AsyncIterator[Service]:
    """The service `name` while the block runs; the block begins when it is loaded.

    owns_health: `load` publishes health itself; otherwise the service is SERVING as soon as it is
    loaded. gate: sees every call before any of its messages is read. The requests of the
    orchestrator are counted. parts: processes that are this service together, behind one port: each
    has its part of the connections and of the messages received at once, and another process has
    the port for probes.
    """
    options = server_options(
        settings.max_message_bytes,
        -(-settings.max_connections // parts),
        settings.max_streams_per_connection,
        shares_port=parts > 1,
    )
    counts = CallCounts()
    edge = EdgeInterceptor(counts)
    incoming = max(settings.max_incoming_messages // parts, 1)
    first_message = FirstMessageInterceptor(incoming, settings.first_message_seconds)
    callers = [AllowedCallers(settings.tls_client_names)] if settings.tls_client_names else []
    gates = [gate] if gate else []
    handlers, checks = Handlers(), health.aio.HealthServicer()
    counted = [CountedCalls(handlers)] if names.service_of(name) == names.ORCHESTRATOR else []
    server = grpc.aio.server(interceptors=[*counted, *callers, *gates, first_message, edge], options=options)
    server.add_generic_rpc_handlers((handlers,))
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    reflection.enable(lambda: (*service.names, INFO, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    port = listen(server, settings)
    service = Service([name], port, handlers, checks, settings.warm_up_from, counts)
    info_pb2_grpc.add_InfoServiceServicer_to_server(service.info, server)
    await service.set_serving(False)
    instruments.watch_tasks()
    probes = HealthPort(service.published_health)
    await probes.start(settings.health_listen if parts == 1 else "")
    service.health_port = probes.port
    await server.start()
    log.info("%s listens on port %d, loading", name, service.port)
    close: Close | None = None
    try:
        with phase("loading, first words included,"):
            close = await load(service)
        handlers.loading = False
        service.info.ready = True
        if not owns_health:
            await service.set_serving(True)
        log.info("%s is loaded", name)
        yield service
    finally:
        await service.leave()
        # Nothing in a broken engine is worth waiting for, not even its thread.
        patience = 0.0 if service.over.done() else settings.drain_seconds
        notice = min(_NOTICE_SECONDS, patience)
        await asyncio.gather(edge.refuse(notice), first_message.refuse(notice))
        # From here on new connections are refused, too. Health watches are not waited for.
        refusing = asyncio.ensure_future(server.stop(patience + _LONGER_THAN_DRAIN))
        await edge.drain(patience, broken=service.over.result() if service.over.done() else "")
        await server.stop(0.0)
        await refusing
        log.info("%s has no more calls", name)
        if close is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BROKEN_CLOSE_SECONDS if service.over.done() else None):
                    await close()
        await probes.close()


async def serve(
    name: str,
    settings: ServerSettings,
    load: Load,
    *,
    owns_health: bool = False,
    gate: Gate = None,
    parts: int = 1,
    drains: Callable[[float], None] = lambda seconds: None,
) -> None:
    """Run until SIGTERM or SIGINT, then drain. drains: called with the seconds for it when it
    begins. Raises ServiceBroken if the engine broke while serving, StoppedWhileLoading if the
    signal came before `load` had returned.

    The objects that `load` has created are excluded from garbage collection.
    """
    telemetry.configure(names.service_of(name), scraped=bool(settings.health_listen))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    async def load_unless_stopped(service: Service) -> Close:
        loading, stopped = asyncio.ensure_future(load(service)), asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((loading, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not loading.done():
                raise StoppedWhileLoading
            close = loading.result()
        finally:
            stopped.cancel()
            loading.cancel()
        # A tensor library creates 300,000 objects. A full collection over them takes 100 ms, during
        # which all threads stop, and happens whenever a quarter as many new ones have survived for
        # a while.
        gc.collect()
        gc.freeze()
        return close

    try:
        async with running(
            name, settings, load_unless_stopped, owns_health=owns_health, gate=gate, parts=parts
        ) as service:
            stopped = asyncio.ensure_future(stop.wait())
            await asyncio.wait((stopped, service.over), return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if service.over.done():
                reason = service.over.result()
                raise (DeviceBroken if isinstance(reason, LossReason) else ServiceBroken)(reason)
            log.info("%s drains, at most %.0f s", name, settings.drain_seconds)
            drains(settings.drain_seconds)
    finally:
        await asyncio.to_thread(telemetry.shutdown)


_STATUS: dict[type[Exception], int] = {ServiceBroken: 1, SettingsError: 2, ModelError: 3}
Settings = TypeVar("Settings", bound=ServerSettings)


def run(
    name: str,
    prefix: str,
    settings: type[Settings],
    loader: Callable[[Settings], Load],
    *,
    owns_health: bool = False,
    gate: Callable[[Settings], Gate] = lambda _: None,
    parts: Callable[[Settings], int] = lambda _: 1,
) -> int:
    """Serve `name` until SIGTERM; returns the exit status, or ends the process if its GPU is lost.

    settings: dataclass read from the variables that begin with `prefix`. loader, gate, parts:
    create from them these arguments of `serve`.
    """
    try:
        values = environment.load(settings, prefix, os.environ)
        telemetry.begin_log(values.log_level)
        age, entrance = process_age(), gate(values)
        if age is not None:
            log.info("start: interpreter and imports took %.1f s", age)
        asyncio.run(_serve(name, values, loader(values), owns_health, entrance, parts(values)))
    except (ServiceBroken, SettingsError, ModelError) as error:
        sys.stderr.write(f"{error}\n")
        return next(status for kind, status in _STATUS.items() if isinstance(error, kind))
    process_end.watch()
    return 0


async def _serve(name: str, values: ServerSettings, load: Load, owns_health: bool, gate: Gate, parts: int) -> None:
    try:
        await serve(name, values, load, owns_health=owns_health, gate=gate, parts=parts, drains=process_end.watch)
    except StoppedWhileLoading:
        # The thread that loads may need minutes more, and both asyncio and the interpreter would
        # wait for it.
        process_end.exit_at_once(0)
    except DeviceBroken as error:
        # A thread that is inside CUDA may never return, and its clean-up neither.
        sys.stderr.write(f"{error}\n")
        process_end.exit_at_once(EXIT_STATUS)
