"""What the client asks a channel that spreads its calls over several servers."""

import abc
from typing import Any, Final

import grpc

from cosyserve.errors import CosyserveError, LimitReached, Overloaded, Unavailable

MOST_TURNS: Final = 3
"""Servers, besides the first, that one request is sent to without a pause."""


class Servers(abc.ABC):
    """Several servers of the same service."""

    @abc.abstractmethod
    def another(self, call: Any, error: CosyserveError) -> bool:
        """Whether another server than that of `call`, which failed so, serves and was not full just
        now.
        """

    @abc.abstractmethod
    def declined(self, call: Any, error: CosyserveError) -> None:
        """The server of `call` is gone or full: the next calls go to others."""


class Turns:
    """How often in a row a request was sent to another server, without a pause."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._servers = channel if isinstance(channel, Servers) else None
        self.number = 0

    def possible(self, call: Any, error: CosyserveError) -> bool:
        """Whether a request whose `call` failed so may be sent to another server at once."""
        elsewhere = isinstance(error, Unavailable | Overloaded) and not isinstance(error, LimitReached)
        if not elsewhere or self._servers is None or self.number >= MOST_TURNS:
            return False
        return self._servers.another(call, error)

    def away(self, call: Any, error: CosyserveError) -> bool:
        """The server of `call` failed so; returns whether the request is to be sent to another."""
        possible = self.possible(call, error)
        if self._servers is not None:
            self._servers.declined(call, error)
        self.number += possible
        return possible
