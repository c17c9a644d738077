"""What the client asks a channel that spreads its calls over several servers."""

import abc
from typing import Any, Final

import grpc

from cosyserve.errors import CosyserveError, LimitReached, Overloaded, SettingsError, Unavailable
from cosyserve.rpc.names.target import named_target
from cosyserve.rpc.tls.channels import open_channel
from cosyserve.rpc.transport import channel_options
from cosyserve.tls.client_tls import ClientTls

MOST_TURNS: Final = 3
"""Servers, besides the first, that one request is sent to without a pause."""


class Servers(abc.ABC):
    """Several servers of the same service."""

    @abc.abstractmethod
    def another(self, call: Any) -> bool:
        """Whether another server than that of `call` serves, and was not full just now."""

    @abc.abstractmethod
    def declined(self, call: Any, error: CosyserveError) -> None:
        """The server of `call` is gone or full: the next calls go to others."""


def channel_to(
    target: str, tls: ClientTls | None, max_message_bytes: int | None = None, *, own_connection: bool = False
) -> grpc.aio.Channel:
    """A channel to a server or, for a name as dns:///name:port, to all servers behind it. Options:
    `channel_options`. Raises SettingsError for certificate files that cannot be used, and for a
    dns: target of another form.
    """
    try:
        is_spread = target.startswith("dns:") and named_target(target) is not None
    except ValueError as error:
        raise SettingsError(str(error)) from error
    if is_spread:
        # The DNS client takes a tenth of a second to import.
        from cosyserve.client.spread_channel import SpreadChannel

        return SpreadChannel(target, tls, max_message_bytes)
    return open_channel(target, channel_options(max_message_bytes, own_connection=own_connection), tls)


class Turns:
    """How often in a row a request was sent to another server, without a pause."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._servers = channel if isinstance(channel, Servers) else None
        self.number = 0

    def possible(self, call: Any, error: CosyserveError) -> bool:
        """Whether a request whose `call` failed so may be sent to another server at once."""
        elsewhere = isinstance(error, Unavailable | Overloaded) and not isinstance(error, LimitReached)
        return elsewhere and self.number < MOST_TURNS and self._servers is not None and self._servers.another(call)

    def away(self, call: Any, error: CosyserveError) -> bool:
        """The server of `call` failed so; returns whether the request is to be sent to another."""
        possible = self.possible(call, error)
        if self._servers is not None:
            self._servers.declined(call, error)
        self.number += possible
        return possible
