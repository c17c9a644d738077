"""Channels: plaintext, or TLS and made again when the certificate files change.

grpcio reads the credentials of a channel once. So calls begin on a new channel as soon as it is
connected with the new certificates, and calls that run go on where they began.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

import grpc

from cosyserve.rpc.transport import OWN_CONNECTION
from cosyserve.tasks import Changes
from cosyserve.tls.certificate_files import Certificates, CurrentCertificates
from cosyserve.tls.settings import ClientTls

_LOOK_SECONDS = 1.0
"""Between two looks at the files while no connection can be made, as between two attempts to
connect.
"""


class DelegatingChannel(grpc.aio.Channel):
    """What stubs ask a channel for."""

    @abstractmethod
    def _method(self, kind: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Callable[..., Any]:
        """A method for a stub. kind: which one of the four below it is asked for, with what."""

    def unary_unary(self, *arguments: Any, **named: Any) -> Any:
        return self._method("unary_unary", arguments, named)

    def unary_stream(self, *arguments: Any, **named: Any) -> Any:
        return self._method("unary_stream", arguments, named)

    def stream_unary(self, *arguments: Any, **named: Any) -> Any:
        return self._method("stream_unary", arguments, named)

    def stream_stream(self, *arguments: Any, **named: Any) -> Any:
        return self._method("stream_stream", arguments, named)


def open_channel(
    target: str, options: Sequence[tuple[str, Any]], tls: ClientTls | None = None, host: str = ""
) -> grpc.aio.Channel:
    """A channel to `target` (host:port or any gRPC target); tls: None for plaintext, which a target
    unix:/path always is. host: the name that the certificate of the server must have unless `tls`
    names one; empty: that of the target. Raises SettingsError for certificate files that cannot be
    used.
    """
    if tls is None or target.startswith("unix:"):
        return grpc.aio.insecure_channel(target, options=options)
    return RenewedChannel(target, tls, options, host)


class _Generation:
    """A channel and the calls that began on it; a retired one is closed with its last call."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.closing: asyncio.Future[None] | None = None
        self._calls = 0
        self._retired = False

    def begin(self, call: Any) -> Any:
        self._calls += 1
        call.add_done_callback(self._ended)
        return call

    @property
    def connected(self) -> bool:
        return self.channel.get_state() is grpc.ChannelConnectivity.READY

    def retire(self) -> None:
        self._retired = True
        self._close_if_idle()

    def _ended(self, _: object) -> None:
        self._calls -= 1
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._retired and self._calls == 0 and self.closing is None:
            self.closing = asyncio.ensure_future(self.channel.close())


class RenewedChannel(DelegatingChannel):
    """As `grpc.aio.secure_channel`; use it inside one event loop.

    Every call looks at the certificate files (`CurrentCertificates`).
    """

    def __init__(self, target: str, tls: ClientTls, options: Sequence[tuple[str, Any]], host: str = "") -> None:
        """host: the name to check if `tls` has none; empty: that of the target. Raises
        SettingsError for files that cannot be used.
        """
        self._target = target
        name = tls.name or host
        # A shared connection would have the certificates of another channel.
        self._options = [*options, OWN_CONNECTION]
        if name:
            self._options.append(("grpc.ssl_target_name_override", name))
        self._certificates = CurrentCertificates(tls.files, "calls")
        self._used = self._certificates.latest()
        self._generation = self._made(self._used)
        self._next: _Generation | None = None
        """Has newer certificates, and is not connected yet."""
        self._before: list[_Generation] = []
        """Retired, and not known to be closed."""
        self._renewed = Changes()
        self._closed = False

    def renew(self) -> None:
        """Change to a new channel if the files have changed and it is connected, or the one of
        before is not.
        """
        if self._closed:
            return
        latest = self._certificates.latest()
        if latest is not self._used:
            self._used = latest
            if self._next is not None:
                self._retire(self._next)
            self._next = self._made(latest)
            self._next.channel.get_state(try_to_connect=True)
        if self._next is not None and (self._next.connected or not self._generation.connected):
            before, self._generation, self._next = self._generation, self._next, None
            self._retire(before)
            self._renewed.notify()

    def _retire(self, generation: _Generation) -> None:
        self._before = [each for each in self._before if each.closing is None or not each.closing.done()]
        self._before.append(generation)
        generation.retire()

    def until_renewed(self, connected: Callable[[], bool]) -> Coroutine[Any, Any, None]:
        """Return when the channel of now has been replaced. While not `connected`, the files are
        looked at every second: no call may come that would look at them.
        """
        return self._until_replaced(self._generation, connected)

    async def _until_replaced(self, generation: _Generation, connected: Callable[[], bool]) -> None:
        while generation is self._generation:
            try:
                async with asyncio.timeout(None if connected() else _LOOK_SECONDS):
                    await self._renewed.wait()
            except TimeoutError:
                self.renew()

    async def close(self, grace: float | None = None) -> None:
        self._closed = True
        every = [*self._before, self._generation, *([self._next] if self._next is not None else [])]
        await asyncio.gather(*(generation.channel.close(grace) for generation in every))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        self.renew()
        return self._generation.channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Also returns, after a second, without a change: the files may have changed."""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._generation.channel.wait_for_state_change(last_observed_state)
        except TimeoutError:
            self.renew()

    async def channel_ready(self) -> None:
        while (state := self.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
            await self.wait_for_state_change(state)

    def _made(self, certificates: Certificates) -> _Generation:
        credentials = grpc.ssl_channel_credentials(certificates.ca, certificates.key, certificates.certificate)
        return _Generation(grpc.aio.secure_channel(self._target, credentials, options=self._options))

    def _method(self, kind: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Callable[..., Any]:
        """What a stub calls: the method of the channel of now."""

        made_on: _Generation | None = None
        method: Callable[..., Any] | None = None

        def call(*request: Any, **options: Any) -> Any:
            nonlocal made_on, method
            self.renew()
            if method is None or made_on is not self._generation:
                made_on = self._generation
                method = getattr(made_on.channel, kind)(*arguments, **named)
            return self._generation.begin(method(*request, **options))

        return call
