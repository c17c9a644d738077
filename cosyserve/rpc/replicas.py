"""The replicas of a stage as seen by a caller: which are serving, and which is the least busy.

Each target has a channel of its own and a health watch on it, so a dead replica is known before a
call is sent to it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve.fault_metrics import BREAKER_OPEN
from cosyserve.rpc.breaker import BreakerRules, CircuitBreaker, admitted
from cosyserve.rpc.tls.channels import RenewedChannel, open_channel
from cosyserve.rpc.transport import CONNECT_SECONDS, channel_options
from cosyserve.tasks import Changes, cancel_all
from cosyserve.tls.client_tls import ClientTls

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
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)


class ReplicaSet:
    """All replicas of one stage. Create and use it inside one event loop; `on_change` is called
    when `serving` may have changed.
    """

    def __init__(
        self,
        stage: str,
        service: str,
        targets: Sequence[str],
        max_message_bytes: int,
        on_change: Callable[[], None],
        tls: ClientTls | None = None,
        breakers: BreakerRules | None = None,
    ) -> None:
        """tls: how the stage is called; None: in plaintext. breakers: of the replicas. Raises
        SettingsError for certificate files that cannot be used.
        """
        # Replicas on one host must not share a connection pool entry of another process's channel.
        options: list[tuple[str, Any]] = [
            *channel_options(max_message_bytes, own_connection=True),
            ("grpc.lb_policy_name", "round_robin"),
        ]
        self.stage, self.tls = stage, tls
        self._service = service
        self._on_change = on_change
        self._changes = Changes()
        self.replicas = [Replica(target, open_channel(target, options, tls)) for target in targets]
        for replica in self.replicas:
            replica.breaker = CircuitBreaker(stage, replica.target, breakers, opened=self._wake_after)
        BREAKER_OPEN.watch(self, _open_breakers)
        self._watches = [asyncio.create_task(self._watch(replica)) for replica in self.replicas]

    @property
    def serving(self) -> bool:
        """Whether at least one replica is serving."""
        return any(replica.serving for replica in self.replicas)

    def serving_replicas(self) -> list[Replica]:
        """Those that are serving now."""
        return [replica for replica in self.replicas if replica.serving]

    async def close(self) -> None:
        BREAKER_OPEN.forget(self)
        await cancel_all(self._watches)
        for replica in self.replicas:
            await replica.channel.close()

    def pick(self, avoid: Collection[Replica] = ()) -> Replica | None:
        """The least busy serving replica outside `avoid` that its breaker lets have a call, or
        None.
        """
        serving = self.serving_replicas()
        able = admitted([replica for replica in serving if replica not in avoid], serving)
        return min(able, key=lambda replica: replica.calls, default=None)

    @property
    def seconds_to_probe(self) -> float | None:
        """Until a replica that serves may be called, where the breakers of all of them are open;
        None: one may be called now, or none serves.
        """
        serving = self.serving_replicas()
        if not serving or admitted(serving, serving):
            return None
        return min(replica.breaker.seconds_to_probe for replica in serving)

    def _wake_after(self, seconds: float) -> None:
        """Those who wait for a replica look again when a breaker allows a probe."""
        asyncio.get_running_loop().call_later(seconds, self._changes.notify)

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
        self.set_serving(replica, serving=False)
        replica.suspected.set()

    @contextlib.contextmanager
    def busy(self, replica: Replica) -> Iterator[None]:
        """Count a call while the block runs."""
        replica.calls += 1
        try:
            yield
        finally:
            replica.calls -= 1

    def set_serving(self, replica: Replica, *, serving: bool) -> None:
        """What its health says."""
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
            watch = _HealthWatch(self, replica, stub.Watch(request, wait_for_ready=True))  # type: ignore[attr-defined]
            if (over := await watch.until_over()) == "renewed":
                continue
            self.set_serving(replica, serving=False)
            if over == "broken":
                replica.breaker.found_again()
            # The channel itself reconnects; this only limits how often a peer that refuses the
            # watch is queried.
            await asyncio.sleep(_REWATCH_SECONDS)


def _open_breakers(replicas: ReplicaSet) -> list[tuple[dict[str, str], float]]:
    """For the gauge."""
    return [({"stage": replicas.stage}, sum(not replica.breaker.is_closed for replica in replicas.replicas))]


class _HealthWatch:
    """One watch on the health of a replica."""

    def __init__(self, replicas: ReplicaSet, replica: Replica, call: "grpc.aio.UnaryStreamCall[Any, Any]") -> None:
        self._replicas, self._replica, self._call = replicas, replica, call
        self._answered = False

    async def until_over(self) -> str:
        """Follow the health until the watch breaks, the replica is suspected, or its channel was
        renewed; returns which: broken, suspected, renewed.
        """
        # The answer to the watch before counts until this one is answered, but not for long.
        late = asyncio.get_running_loop().call_later(CONNECT_SECONDS, self._unanswered)
        tasks = {
            "broken": asyncio.create_task(self._listen()),
            "suspected": asyncio.create_task(self._replica.suspected.wait()),
        }
        if isinstance(self._replica.channel, RenewedChannel):
            renewed = self._replica.channel.until_renewed(lambda: self._answered)
            tasks["renewed"] = asyncio.create_task(renewed)
        try:
            await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
            return next(name for name, task in tasks.items() if task.done())
        finally:
            late.cancel()
            await cancel_all(tasks.values())
            self._call.cancel()

    def _unanswered(self) -> None:
        if not self._answered:
            self._replicas.set_serving(self._replica, serving=False)

    async def _listen(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for response in self._call:
                self._answered = True
                serving = response.status == health_pb2.HealthCheckResponse.SERVING
                self._replicas.set_serving(self._replica, serving=serving)
