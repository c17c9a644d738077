"""One channel over several servers, such as those behind a name: each call goes to one that serves,
the least busy by the calls of this process.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakKeyDictionary

import grpc

from cosyserve.client.servers import Servers
from cosyserve.errors import CosyserveError, Overloaded, Unavailable
from cosyserve.rpc.replicas import Replica, ReplicaSet
from cosyserve.rpc.tls.channels import DelegatingChannel, open_channel
from cosyserve.rpc.transport import channel_options
from cosyserve.tasks import cancel_all
from cosyserve.tls.settings import ClientTls

_LOOK_UP_SECONDS: Final = 2.0
_FULL_SECONDS: Final = 1.0
"""How long a server that was full is not called while another serves, if it does not say itself."""
_WHOLE_SERVER: Final = ""
"""The name under which the health of a server as a whole is known."""


class SpreadChannel(DelegatingChannel, Servers):
    """Use it inside one event loop. While no server is known to serve, as before the name is looked
    up for the first time, calls go over a channel of gRPC's own, which says why they fail.
    """

    def __init__(self, targets: Sequence[str], tls: ClientTls | None, max_message_bytes: int | None) -> None:
        """targets: dns:///name:port, or an address; each has a connection of its own to each of its
        addresses. Raises SettingsError for certificate files that cannot be used.
        """
        self._targets, self._tls, self._most = targets, tls, max_message_bytes
        options = [*channel_options(max_message_bytes), ("grpc.lb_policy_name", "round_robin")]
        self._whole = open_channel(targets[0], options, tls)
        self._opened: ReplicaSet | None = None
        self._server_of: WeakKeyDictionary[Any, Replica] = WeakKeyDictionary()
        self._full_until: WeakKeyDictionary[Replica, float] = WeakKeyDictionary()

    @property
    def _servers(self) -> ReplicaSet:
        """Followed from the first use on, which is inside the event loop."""
        if self._opened is None:
            self._opened = ReplicaSet(
                "server",
                _WHOLE_SERVER,
                self._targets,
                self._most,
                lambda: None,
                self._tls,
                look_up_seconds=_LOOK_UP_SECONDS,
                follow_load=False,
            )
        return self._opened

    def _able(self, avoid: Replica | None = None) -> list[Replica]:
        """Those that serve and were not full just now."""
        now = asyncio.get_running_loop().time()
        serving = self._servers.serving_replicas()
        return [each for each in serving if each is not avoid and self._full_until.get(each, now) <= now]

    def another(self, call: Any, error: CosyserveError) -> bool:
        server = self._server_of.get(call)
        able = self._able(avoid=server)
        if server is not None and isinstance(error, Overloaded):
            # Processes behind one address have one limit: all of them are full.
            return any(each.target != server.target for each in able)
        return bool(able)

    def declined(self, call: Any, error: CosyserveError) -> None:
        server = self._server_of.get(call)
        if server is not None and isinstance(error, Unavailable):
            self._servers.suspect(server)
        elif server is not None and isinstance(error, Overloaded):
            pause = min(error.retry_after or _FULL_SECONDS, _FULL_SECONDS)
            until = asyncio.get_running_loop().time() + pause
            self._full_until.update({each: until for each in self._servers.replicas if each.target == server.target})

    def _choose(self) -> Replica | None:
        """Any of the least busy ones: other clients may choose too, and would take the same."""
        able = self._able() or self._servers.serving_replicas()
        fewest = min((each.calls for each in able), default=0)
        return random.choice([each for each in able if each.calls == fewest]) if able else None  # noqa: S311

    def _method(self, kind: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Callable[..., Any]:
        """What a stub calls."""

        def call(*request: Any, **options: Any) -> Any:
            server = self._choose()
            channel = self._whole if server is None else server.channel
            begun = getattr(channel, kind)(*arguments, **named)(*request, **options)
            if server is not None:
                self._servers.begins(server)
                begun.add_done_callback(lambda _: self._servers.ends(server))
                self._server_of[begun] = server
            return begun

        return call

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """READY if a server serves, else that of gRPC's own channel."""
        if self._servers.serving:
            return grpc.ChannelConnectivity.READY
        return self._whole.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._whole.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Return when a server serves, or at least one accepts connections."""
        ways = [
            asyncio.ensure_future(self._servers.until_serving()),
            asyncio.ensure_future(self._whole.channel_ready()),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_all(ways)

    async def close(self, grace: float | None = None) -> None:
        if self._opened is not None:
            await self._opened.close(grace)
        await self._whole.close(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
