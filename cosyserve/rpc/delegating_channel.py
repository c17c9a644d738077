"""A channel whose calls go over others, chosen call by call."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import grpc


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
