"""Facts about a service, and InfoService, which reports them and does a warm-up run: the same on
every service. Fields as in info.proto.
"""

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from grpc.aio import ServicerContext

from cosyserve.engines.compatibility import Identity
from cosyserve.engines.engine_load import Load
from cosyserve.engines.fallback import Refusal
from cosyserve.engines.gpu_facts import library_versions
from cosyserve.errors import InvalidRequest, Overloaded, Unavailable
from cosyserve.rpc.load.reported import CallCounts, caller_of
from cosyserve.rpc.peers import require_peer
from cosyserve.v1 import identity_pb2, info_pb2, info_pb2_grpc


@dataclass(frozen=True, kw_only=True)
class ServiceFacts:
    """Facts about a loaded service."""

    identity: Identity | None = None
    rung: str = ""
    refused: tuple[Refusal, ...] = ()
    buckets: tuple[int, ...] = ()
    capacity: int = 0
    """Calls that are served at once by the settings; 0: not known."""
    limits: dict[str, float] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    prompt_as_block: bool = False


def limits_of(settings: Any, *names: str) -> dict[str, float]:
    """The given fields of a settings dataclass, without those that are None."""
    return {name: float(value) for name in names if (value := getattr(settings, name)) is not None}


def libraries(*names: str) -> dict[str, str]:
    """Versions of the given packages that are installed, and of those that every service uses."""
    return library_versions("grpcio", "protobuf", "numpy", *names)


@functools.cache
def release() -> str:
    """Version of cosyserve, `unknown` when it runs from a tree that is not installed."""
    try:
        return version("cosyserve")
    except PackageNotFoundError:
        return "unknown"


def identity_from_proto(message: identity_pb2.EngineIdentity) -> Identity:
    """The message as a value that can be compared."""
    return Identity(message.model_hash, message.backend, message.precision, message.device)


def identity_to_proto(identity: Identity) -> identity_pb2.EngineIdentity:
    """As EngineIdentity of identity.proto."""
    return identity_pb2.EngineIdentity(
        model_hash=identity.model_hash, backend=identity.backend, precision=identity.precision, device=identity.device
    )


NAME = "cosyserve.v1.InfoService"
Context = ServicerContext[Any, Any]
WarmUp = Callable[[], Awaitable[object]]
StageInfos = Callable[[], Coroutine[Any, Any, tuple[list[info_pb2.ServiceInfo], list[str]]]]
"""The ServiceInfo of the stages, and the names of those that did not answer."""
Loads = Callable[[], Load | None]
Admit = Callable[[], contextlib.AbstractAsyncContextManager[object]]
Admitted = Callable[[], tuple[int, int]]
"""Requests that are admitted at once now, and those running."""
_LOADING = "this service is still loading; wait until its health is SERVING"
_RETRY_SECONDS = 1.0
_REPORT_SECONDS = 0.2
"""Between two reports of the load to one caller, unless it asks for another interval."""
_REPORT_SECONDS_EACH = 0.01
"""The same for each caller that watches, so that all of them get 100 reports a second."""
_LONGEST_REPORT_MILLISECONDS = 60_000


class InfoServicer(info_pb2_grpc.InfoServiceServicer):
    """service: full name of the main service of this process. peers: networks whose hosts may start
    a warm-up, besides this host. calls: the calls in progress.
    """

    def __init__(self, service: str, peers: Sequence[str], calls: CallCounts) -> None:
        self._peers, self._calls = peers, calls
        self._load_watchers = 0
        self._admit: Admit = contextlib.nullcontext
        self._service, self._began = service, time.monotonic()
        self._facts = ServiceFacts()
        self._warm_up: WarmUp | None = None
        self._stages: StageInfos | None = None
        self._load: Loads = lambda: None
        self._admitted: Admitted = lambda: (0, 0)
        self._warming = False
        self._asking: asyncio.Task[tuple[list[info_pb2.ServiceInfo], list[str]]] | None = None
        self.ready = False

    def describe(
        self,
        facts: ServiceFacts,
        warm_up: WarmUp,
        stages: StageInfos | None = None,
        *,
        load: Loads = lambda: None,
        admit: Admit = contextlib.nullcontext,
        admitted: Admitted = lambda: (0, 0),
    ) -> None:
        """Set what was loaded, and how to warm it up.

        load, admitted: return values that change while the service runs. admit: the context that a
        warm-up enters while it runs, as a request does; it raises Overloaded if there is no place.
        """
        self._facts, self._warm_up, self._stages = facts, warm_up, stages
        self._load, self._admit, self._admitted = load, admit, admitted

    async def GetInfo(self, request: info_pb2.GetInfoRequest, context: Context) -> info_pb2.GetInfoResponse:
        """Answers at any time. Concurrent calls share one query of the stages."""
        response = info_pb2.GetInfoResponse(info=self._info())
        if self._stages is not None and self.ready:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.ensure_future(self._stages())
            # A caller that hangs up must not cancel the query of the others.
            stages, silent = await asyncio.shield(self._asking)
            response.stages.extend(stages)
            response.silent_stages.extend(silent)
        return response

    async def WarmUp(self, request: info_pb2.WarmUpRequest, context: Context) -> info_pb2.WarmUpResponse:
        """Raises PermissionDenied for a caller that is no peer, Unavailable while loading,
        Overloaded while another warm-up runs or no request would be admitted, and what the engine
        raises.
        """
        require_peer(context.peer(), self._peers, "WarmUp")
        if self._warm_up is None or not self.ready:
            raise Unavailable(_LOADING, retry_after=_RETRY_SECONDS)
        if self._warming:
            raise Overloaded("a warm-up is under way", retry_after=_RETRY_SECONDS)
        self._warming, began = True, time.monotonic()
        try:
            async with self._admit():
                await self._warm_up()
        finally:
            self._warming = False
        return info_pb2.WarmUpResponse(milliseconds=(time.monotonic() - began) * 1000)

    async def WatchLoad(
        self, request: info_pb2.WatchLoadRequest, context: Context
    ) -> AsyncIterator[info_pb2.WatchLoadResponse]:
        """Reports the load when it has changed. Raises InvalidRequest for an interval out of
        range.
        """
        milliseconds = request.min_interval_milliseconds
        if not 0 <= milliseconds <= _LONGEST_REPORT_MILLISECONDS:
            raise InvalidRequest(
                f"min_interval_milliseconds is {milliseconds}, allowed are 0 to {_LONGEST_REPORT_MILLISECONDS}"
            )
        caller, last = caller_of(context.invocation_metadata()), None
        self._watching(1)
        try:
            while True:
                news = info_pb2.WatchLoadResponse(
                    other_calls=self._calls.others_than(caller),
                    capacity=self._facts.capacity,
                    callers=self._load_watchers,
                )
                if news == last:
                    await self._calls.changes.wait()
                    continue
                yield news
                last = news
                await asyncio.sleep(
                    max(milliseconds / 1000 or _REPORT_SECONDS, _REPORT_SECONDS_EACH * self._load_watchers)
                )
        finally:
            self._watching(-1)

    def _watching(self, change: int) -> None:
        """The others get a report of how many they are."""
        self._load_watchers += change
        self._calls.changes.notify()

    def _info(self) -> info_pb2.ServiceInfo:
        facts = self._facts
        info = info_pb2.ServiceInfo(
            service=self._service,
            version=release(),
            ready=self.ready,
            uptime_seconds=time.monotonic() - self._began,
            rung=facts.rung,
            refused_rungs=[info_pb2.RefusedRung(rung=one.rung, reason=one.reason) for one in facts.refused],
            buckets=facts.buckets,
            limits=facts.limits,
            libraries=facts.libraries,
            prompt_as_block=facts.prompt_as_block,
        )
        if facts.identity is not None:
            info.identity.CopyFrom(identity_to_proto(facts.identity))
        if (load := self._load()) is not None:
            info.load.CopyFrom(
                info_pb2.EngineLoad(
                    real_time_factor=load.real_time_factor, pieces=load.pieces, late_pieces=load.late_pieces
                )
            )
        info.admitted_streams, info.active_streams = self._admitted()
        return info
