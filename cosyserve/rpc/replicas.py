"""The replicas of a stage as seen by a caller: which are serving, and which is the least busy.

Each target has a channel of its own and a health watch on it, so a dead replica is known before a
call is sent to it.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve.rpc.transport import channel_options
from cosyserve.tasks import Changes, cancel_all

log = logging.getLogger(__name__)

_REWATCH_SECONDS: Final = 0.5


@dataclass(eq=False)
class Replica:
    """One target of a stage."""

    target: str
    channel: grpc.aio.Channel
    serving: bool = False
    calls: int = 0
    """Calls in flight from this process."""
    suspected: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by a caller whose call failed: the health is then queried again."""


class ReplicaSet:
    """All replicas of one stage. Create and use it inside one event loop; `on_change` is called
    when `serving` may have changed.
    """

    def __init__(
        self, stage: str, service: str, targets: Sequence[str], max_message_bytes: int, on_change: Callable[[], None]
    ) -> None:
        # Replicas on one host must not share a connection pool entry of another process's channel.
        options: list[tuple[str, Any]] = [
            *channel_options(max_message_bytes, own_connection=True),
            ("grpc.lb_policy_name", "round_robin"),
        ]
        self.stage = stage
        self._service = service
        self._on_change = on_change
        self._changes = Changes()
        self.replicas = [Replica(target, grpc.aio.insecure_channel(target, options=options)) for target in targets]
        self._watches = [asyncio.create_task(self._watch(replica)) for replica in self.replicas]

    @property
    def serving(self) -> bool:
        """Whether at least one replica is serving."""
        return any(replica.serving for replica in self.replicas)

    def serving_replicas(self) -> list[Replica]:
        """Those that are serving now."""
        return [replica for replica in self.replicas if replica.serving]

    async def close(self) -> None:
        await cancel_all(self._watches)
        for replica in self.replicas:
            await replica.channel.close()

    def pick(self, avoid: Collection[Replica] = ()) -> Replica | None:
        """The least busy serving replica outside `avoid`, or None."""
        able = [replica for replica in self.replicas if replica.serving and replica not in avoid]
        return min(able, key=lambda replica: replica.calls, default=None)

    async def wait(self, seconds: float, avoid: Collection[Replica] = ()) -> Replica | None:
        """As `pick`, but wait up to `seconds` for a replica to come up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self._changes.wait_for(lambda: self.pick(avoid))
        return self.pick(avoid)

    def suspect(self, replica: Replica) -> None:
        """A call on `replica` failed as if it were gone: do not use it before its health is known
        again.
        """
        self._set(replica, serving=False)
        replica.suspected.set()

    @contextlib.contextmanager
    def busy(self, replica: Replica) -> Iterator[None]:
        """Count a call while the block runs."""
        replica.calls += 1
        try:
            yield
        finally:
            replica.calls -= 1

    def _set(self, replica: Replica, *, serving: bool) -> None:
        if replica.serving == serving:
            return
        replica.serving = serving
        log.info("%s at %s is %s", self.stage, replica.target, "serving" if serving else "not serving")
        self._changes.notify()
        self._on_change()

    async def _watch(self, replica: Replica) -> None:
        stub = health_pb2_grpc.HealthStub(replica.channel)
        request = health_pb2.HealthCheckRequest(service=self._service)
        while True:
            replica.suspected.clear()
            call = stub.Watch(request, wait_for_ready=True)  # type: ignore[attr-defined]
            listen = asyncio.create_task(self._listen(replica, call))
            suspected = asyncio.create_task(replica.suspected.wait())
            try:
                await asyncio.wait((listen, suspected), return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel_all((listen, suspected))
                call.cancel()
            self._set(replica, serving=False)
            # The channel itself reconnects; this only limits how often a peer that refuses the
            # watch is queried.
            await asyncio.sleep(_REWATCH_SECONDS)

    async def _listen(self, replica: Replica, call: "AsyncIterator[health_pb2.HealthCheckResponse]") -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for response in call:
                self._set(replica, serving=response.status == health_pb2.HealthCheckResponse.SERVING)
