"""The replicas of a stage as seen by a caller: which are serving, and which is the least busy.

Each address has a channel of its own and a health watch on it, so a dead replica is known before a
call is sent to it. A target that is a name is looked up again and again: every address behind it is
a replica.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve.errors import SettingsError
from cosyserve.metrics import names
from cosyserve.metrics.instruments import gauge
from cosyserve.rpc.load.breaker import BreakerRules, CircuitBreaker, admitted
from cosyserve.rpc.load.reported import Balanced, least_busy, new_caller
from cosyserve.rpc.load.watches import HealthWatch, watch_load
from cosyserve.rpc.names.lookup import LOOK_UP_SECONDS, FollowedName
from cosyserve.rpc.names.target import NamedTarget, named_target
from cosyserve.rpc.tls.channels import open_channel
from cosyserve.rpc.transport import channel_options
from cosyserve.tasks import Changes, cancel_all
from cosyserve.tls.settings import ClientTls

log = logging.getLogger(__name__)

_REWATCH_SECONDS: Final = 0.5
_LAST_CALLS_SECONDS: Final = 120.0
"""How long calls that are not counted, such as a warm-up, may go on at a replica that is gone."""


@dataclass(eq=False)
class _Place:
    target: str
    channel: grpc.aio.Channel


@dataclass(eq=False)
class Replica(Balanced, _Place):
    """One address of a stage. calls: in flight from this process."""

    serving: bool = False
    suspected: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by a caller whose call failed: the health is then queried again."""
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    gone: bool = False
    """Its address is no longer behind its name: calls under way go on, and no new one begins."""
    name: FollowedName | None = None
    """The name that it is behind, if any."""
    watch: "asyncio.Task[None] | None" = None


class ReplicaSet:
    """All replicas of one stage. Create and use it inside one event loop; `on_change` is called
    when `serving` may have changed.
    """

    def __init__(
        self,
        stage: str,
        service: str,
        targets: Sequence[str],
        max_message_bytes: int | None,
        on_change: Callable[[], None],
        tls: ClientTls | None = None,
        breakers: BreakerRules | None = None,
        *,
        look_up_seconds: float = LOOK_UP_SECONDS,
        follow_load: bool = True,
    ) -> None:
        """targets: addresses, and names (`named_target`), which are looked up every
        `look_up_seconds`. tls: how the stage is called; None: in plaintext. breakers: of the
        replicas. follow_load: whether replicas are asked for their load, once there are several to
        choose among. Raises SettingsError for certificate files that cannot be used, and for a
        target that cannot be one.
        """
        self.stage, self.tls = stage, tls
        self._service = service
        self._on_change = on_change
        self._follow_load = follow_load
        self._changes = Changes()
        self._breakers = breakers
        gauge(names.BREAKER_OPEN).watch(self, _open_breakers)
        # Replicas on one host must not share a connection pool entry of another process's channel.
        self._options: list[tuple[str, Any]] = [
            *channel_options(max_message_bytes, own_connection=True),
            ("grpc.lb_policy_name", "round_robin"),
            new_caller(),
        ]
        self._gone: set[Replica] = set()
        """Those that calls still go on at."""
        self._closing: set[asyncio.Task[None]] = set()
        try:
            looked_up = [named_target(target) for target in targets]
        except ValueError as error:
            raise SettingsError(f"{stage}: {error}") from error
        # By target, in their order; those of a name in the order of its addresses.
        self._behind: list[list[Replica]] = [
            [self._opened(target, open_channel(target, self._options, tls))] if name is None else []
            for target, name in zip(targets, looked_up, strict=True)
        ]
        self._names = [
            asyncio.create_task(self._follow(at, name, look_up_seconds))
            for at, name in enumerate(looked_up)
            if name is not None
        ]

    @property
    def replicas(self) -> list[Replica]:
        """All of them; none for a name that has no address yet."""
        return [replica for behind in self._behind for replica in behind]

    @property
    def serving(self) -> bool:
        """Whether at least one replica is serving."""
        return any(replica.serving for replica in self.replicas)

    def serving_replicas(self) -> list[Replica]:
        """Those that are serving now."""
        return [replica for replica in self.replicas if replica.serving]

    async def until_serving(self) -> None:
        """Return when a replica serves."""
        await self._changes.wait_for(lambda: self.serving)

    async def close(self, grace: float | None = None) -> None:
        """grace: seconds for the calls in progress."""
        gauge(names.BREAKER_OPEN).forget(self)
        watches = [replica.watch for replica in self.replicas if replica.watch is not None]
        await cancel_all([*self._names, *watches, *self._closing])
        for replica in [*self.replicas, *self._gone]:
            await replica.channel.close(grace)

    def pick(self, avoid: Collection[Replica] = ()) -> Replica | None:
        """The least busy serving replica outside `avoid` that its breaker lets have a call, or
        None.
        """
        serving = self.serving_replicas()
        return least_busy(admitted([replica for replica in serving if replica not in avoid], serving))

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
        self.begins(replica)
        try:
            yield
        finally:
            self.ends(replica)

    def begins(self, replica: Replica) -> None:
        """Count a call until it `ends`."""
        replica.calls += 1
        replica.begun += 1

    def ends(self, replica: Replica) -> None:
        """A call that was counted is over."""
        replica.calls -= 1
        self._close_if_unused(replica)

    def set_serving(self, replica: Replica, *, serving: bool) -> None:
        """What its health says."""
        if replica.serving == serving:
            return
        replica.serving = serving
        log.info("%s at %s is %s", self.stage, replica.target, "serving" if serving else "not serving")
        if not serving and replica.name is not None:
            replica.name.soon()
        self._changes.notify()
        self._on_change()

    async def _follow(self, at: int, name: NamedTarget, seconds: float) -> None:
        followed = FollowedName(name, lambda targets: self._take(at, name, followed, targets), seconds)
        await followed.run()

    def _take(self, at: int, name: NamedTarget, followed: FollowedName, targets: list[str]) -> None:
        """The name now has these addresses."""
        before = {replica.target: replica for replica in self._behind[at]}
        self._behind[at] = [
            before.pop(target)
            if target in before
            else self._opened(target, self._channel_behind(target, name), followed)
            for target in targets
        ]
        for replica in before.values():
            log.info("%s at %s is gone from %s", self.stage, replica.target, name.authority)
            replica.gone, replica.name = True, None
            self._gone.add(replica)
            if replica.watch is not None:
                replica.watch.cancel()
            self.set_serving(replica, serving=False)
            self._close_if_unused(replica)

    def _channel_behind(self, target: str, name: NamedTarget) -> grpc.aio.Channel:
        """A channel to one address of a name, which its certificate is for."""
        # A proxy is meant for names, and knows nothing of these addresses.
        options = [*self._options, ("grpc.enable_http_proxy", 0)]
        if self.tls is None:
            options.append(("grpc.default_authority", name.authority))
        return open_channel(target, options, self.tls, name.host)

    def _opened(self, target: str, channel: grpc.aio.Channel, name: FollowedName | None = None) -> Replica:
        breaker = CircuitBreaker(self.stage, target, self._breakers, opened=self._wake_after)
        replica = Replica(target, channel, breaker=breaker, name=name)
        replica.watch = asyncio.create_task(self._watch(replica))
        return replica

    def _close_if_unused(self, replica: Replica) -> None:
        if replica in self._gone and not replica.calls:
            self._gone.discard(replica)
            closing = asyncio.create_task(replica.channel.close(_LAST_CALLS_SECONDS))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _watch(self, replica: Replica) -> None:
        stub = health_pb2_grpc.HealthStub(replica.channel)
        request = health_pb2.HealthCheckRequest(service=self._service)
        while True:
            replica.suspected.clear()
            call = stub.Watch(request, wait_for_ready=True)  # type: ignore[attr-defined]
            watch = HealthWatch(replica, call, lambda serving: self.set_serving(replica, serving=serving))
            reports = [asyncio.create_task(self._follow_reports(replica))] if self._follow_load else []
            try:
                over = await watch.until_over()
            finally:
                await cancel_all(reports)
            if over == "renewed":
                continue
            self.set_serving(replica, serving=False)
            if over == "broken":
                replica.breaker.found_again()
            # The channel itself reconnects; this only limits how often a peer that refuses the
            # watch is queried.
            await asyncio.sleep(_REWATCH_SECONDS)

    async def _follow_reports(self, replica: Replica) -> None:
        # A report is sent just when a call begins, and takes time from it. So `callers` of those
        # who follow lacks one with a single address, which sends its calls there in any case.
        await self._changes.wait_for(lambda: len(self.replicas) > 1)
        await watch_load(replica.channel, replica, len(self.replicas))


def _open_breakers(replicas: ReplicaSet) -> list[tuple[dict[str, str], float]]:
    """For the gauge."""
    return [({"stage": replicas.stage}, sum(not replica.breaker.is_closed for replica in replicas.replicas))]
