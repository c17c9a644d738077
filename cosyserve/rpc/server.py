"""Runs a gRPC service: health, reflection, errors as status, traces, limits, drain on SIGTERM.

The port answers from the start: until `load` has returned, health is NOT_SERVING and every other
call fails with UNAVAILABLE. As a process (`run`) it has its settings from the environment, writes
one line to stderr if it cannot start, and exits with 0 when it has drained, 1 if the engine broke
while serving, 2 because of the settings, 3 because of the model directory.
"""

import asyncio
import contextlib
import gc
import ipaddress
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from cosyserve import settings as environment
from cosyserve import telemetry
from cosyserve.errors import ModelError, SettingsError
from cosyserve.rpc import reflection
from cosyserve.rpc.first_message import FirstMessageInterceptor
from cosyserve.rpc.interceptors import EdgeInterceptor
from cosyserve.rpc.method_table import Handlers
from cosyserve.rpc.service_info import NAME as INFO
from cosyserve.rpc.service_info import InfoServicer
from cosyserve.rpc.transport import server_options
from cosyserve.settings import require_range
from cosyserve.v1 import info_pb2_grpc

log = logging.getLogger(__name__)
Close = Callable[[], Awaitable[None]]
_BROKEN_CLOSE_SECONDS = 5.0
_LONGER_THAN_DRAIN = 5.0
_NOTICE_SECONDS = 0.5
"""How long the port still refuses new calls properly, for clients that have not seen the shutdown
yet.
"""


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of every service; each service adds its own fields."""

    listen: str
    """host:port to listen on; port 0 takes a free one."""
    drain_seconds: float = 30.0
    """Seconds that accepted calls may continue after SIGTERM; not negative."""
    max_message_bytes: int = 16 * 1024 * 1024
    """Largest message in bytes, 65536 to 2147483647."""
    max_connections: int = 1_024
    """Most connections at once, 1 to 65536; a further one is closed when it is accepted."""
    max_streams_per_connection: int = 1_024
    """Most calls at once on one connection, 1 to 65536; a gRPC client queues further ones."""
    max_incoming_messages: int = 16
    """First messages received at once, 1 to 1024, each of which may hold max_message_bytes; other
    calls wait for their turn.
    """
    first_message_seconds: float = 30.0
    """Seconds, 0.1 to 600, after which a call without a complete first message ends with
    DEADLINE_EXCEEDED.
    """
    warm_up_from: tuple[str, ...] = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
    """Networks (CIDR) whose hosts may call WarmUp, in addition to this host: where the
    orchestrators run.
    """
    log_level: str = "INFO"
    """Name of a level of the logging module."""

    def __post_init__(self) -> None:
        require_range(
            self, ["drain_seconds"], "{name} is {value:g}; it must not be negative", least=0, most=sys.float_info.max
        )
        in_bytes = "{name} is {value}, allowed are {least} to {most}"
        require_range(self, ["max_message_bytes"], in_bytes, least=1 << 16, most=(1 << 31) - 1)
        for name, least, most in (
            ("max_connections", 1, 65_536),
            ("max_streams_per_connection", 1, 65_536),
            ("max_incoming_messages", 1, 1_024),
            ("first_message_seconds", 0.1, 600.0),
        ):
            message = "{name} is {value:g}, allowed are {least:g} to {most:g}"
            require_range(self, [name], message, least=least, most=most)
        for network in self.warm_up_from:
            ipaddress.ip_network(network)
        levels = logging.getLevelNamesMapping()
        if self.log_level.upper() not in levels:
            raise ValueError(f"log_level is {self.log_level!r}, allowed are {', '.join(levels)}")


class StoppedWhileLoading(Exception):
    """The process was asked to end while its engine was loading, which cannot be interrupted from
    inside.
    """


class ServiceBroken(Exception):
    """The engine is beyond repair and the process has to end."""


class Service:
    """A running service: where it listens, its method table and its health."""

    def __init__(
        self, name: str, port: int, handlers: Handlers, checks: health.aio.HealthServicer, peers: Sequence[str]
    ) -> None:
        """Create it inside the event loop that serves. peers: networks whose hosts may start a
        warm-up.
        """
        self.name = name
        """Full protobuf name, e.g. cosyserve.v1.LlmService."""
        self.port = port
        self.handlers = handlers
        self.info = InfoServicer(name, peers)
        """Servicer of InfoService; `load` sets its facts."""
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Set with the reason if the service cannot continue."""
        self._checks = checks
        self._loop = asyncio.get_running_loop()

    def broken(self, reason: str) -> None:
        """Report that the engine is beyond repair: turn NOT_SERVING and let `serve` end the
        process, so that a supervisor starts a new one.

        May be called from any thread and more than once.
        """
        self._loop.call_soon_threadsafe(self._give_up, reason)

    def _give_up(self, reason: str) -> None:
        if not self.over.done():
            log.critical("%s cannot go on: %s", self.name, reason)
            self.over.set_result(reason)

    async def set_serving(self, serving: bool) -> None:
        """Publish health for the service and for the whole server."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", self.name):
            await self._checks.set(name, status)


Gate = grpc.aio.ServerInterceptor | None
Load = Callable[[Service], Awaitable[Close]]
"""Loads the engine and adds servicers to `service.handlers`; returns what to call at the end."""


@contextlib.asynccontextmanager
async def running(
    name: str, settings: ServerSettings, load: Load, *, owns_health: bool = False, gate: Gate = None
) -> AsyncIterator[Service]:
    """The service `name` while the block runs; the block begins when it is loaded.

    owns_health: `load` publishes health itself; otherwise the service is SERVING as soon as it is
    loaded. gate: sees every call before any of its messages is read.
    """
    options = server_options(settings.max_message_bytes, settings.max_connections, settings.max_streams_per_connection)
    edge = EdgeInterceptor()
    first_message = FirstMessageInterceptor(settings.max_incoming_messages, settings.first_message_seconds)
    server = grpc.aio.server(interceptors=[*([gate] if gate else []), first_message, edge], options=options)
    handlers, checks = Handlers(), health.aio.HealthServicer()
    server.add_generic_rpc_handlers((handlers,))
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    reflection.enable((name, INFO, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        port = server.add_insecure_port(settings.listen)
    except RuntimeError as error:
        raise SettingsError(
            f"listen is {settings.listen!r}, which cannot be listened on (in use, or not host:port)"
        ) from error
    service = Service(name, port, handlers, checks, settings.warm_up_from)
    info_pb2_grpc.add_InfoServiceServicer_to_server(service.info, server)
    await service.set_serving(False)
    await server.start()
    log.info("%s listens on port %d, loading", name, service.port)
    close: Close | None = None
    try:
        close = await load(service)
        handlers.loading = False
        service.info.ready = True
        if not owns_health:
            await service.set_serving(True)
        log.info("%s is loaded", name)
        yield service
    finally:
        await checks.enter_graceful_shutdown()  # NOT_SERVING for good
        # Nothing in a broken engine is worth waiting for, not even its thread.
        patience = 0.0 if service.over.done() else settings.drain_seconds
        notice = min(_NOTICE_SECONDS, patience)
        await asyncio.gather(edge.refuse(notice), first_message.refuse(notice))
        # From here on new connections are refused, too. Health watches are not waited for.
        refusing = asyncio.ensure_future(server.stop(patience + _LONGER_THAN_DRAIN))
        await edge.drain(patience)
        await server.stop(0.0)
        await refusing
        if close is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BROKEN_CLOSE_SECONDS if service.over.done() else None):
                    await close()


async def serve(
    name: str, settings: ServerSettings, load: Load, *, owns_health: bool = False, gate: Gate = None
) -> None:
    """Run until SIGTERM or SIGINT, then drain. Raises ServiceBroken if the engine broke while
    serving, StoppedWhileLoading if the signal came before `load` had returned.

    The objects that `load` has created are excluded from garbage collection.
    """
    telemetry.configure(name.rsplit(".", 1)[-1])
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
        async with running(name, settings, load_unless_stopped, owns_health=owns_health, gate=gate) as service:
            stopped = asyncio.ensure_future(stop.wait())
            await asyncio.wait((stopped, service.over), return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if service.over.done():
                raise ServiceBroken(service.over.result())
            log.info("%s drains, at most %.0f s", name, settings.drain_seconds)
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
) -> int:
    """Serve `name` until SIGTERM; returns the exit status.

    settings: dataclass read from the variables that begin with `prefix`. loader, gate: create from
    them these arguments of `serve`.
    """
    try:
        values = environment.load(settings, prefix, os.environ)
        logging.basicConfig(level=values.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        asyncio.run(_serve(name, values, loader(values), owns_health, gate(values)))
    except (ServiceBroken, SettingsError, ModelError) as error:
        sys.stderr.write(f"{error}\n")
        return next(status for kind, status in _STATUS.items() if isinstance(error, kind))
    return 0


async def _serve(name: str, values: ServerSettings, load: Load, owns_health: bool, gate: Gate) -> None:
    try:
        await serve(name, values, load, owns_health=owns_health, gate=gate)
    except StoppedWhileLoading:
        # The thread that loads may need minutes more, and both asyncio and the interpreter would
        # wait for it.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
