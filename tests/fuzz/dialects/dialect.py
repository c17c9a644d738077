"""What a protocol is to the fuzz: its messages, and an oracle that says what is due for them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from hypothesis import strategies as st

from tests.fuzz.dialects.odd_values import Fields, is_unicode


class Form(Enum):
    """What a protocol says to a message, wherever it comes."""

    LEGAL = "its form is that of the protocol"
    REFUSED = "no such message"
    DOUBTFUL = "the fuzz does not know"


class Oracle(ABC):
    """One connection, from what was sent on it and heard from it.

    doomed: the server has to end the connection; doubtful: it may. By an error message in front and
    a close code, if it is a WebSocket.
    """

    refusals: frozenset[int] = frozenset({1008})
    """Close codes with which the server refuses what it said why."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.doomed = self.doubtful = self.unframed = False
        """unframed: bytes were sent that are no message of WebSockets either."""
        self.heard = self.errors = 0
        """Messages of the server; error messages among them."""
        self.history: list[str] = []
        """The newest messages in both directions, for people."""

    def sends(self, message: Fields | None, form: Form) -> None:
        """The caller has sent a message; None: what is no JSON object."""
        self._note(">", message)
        if self.doomed:
            return
        if form is Form.LEGAL and message is not None and is_unicode(message):
            self._on_legal(message)
        elif form is Form.DOUBTFUL:
            self.doubtful = True
        else:
            self._on_refused()

    def hears(self, message: Fields | bytes) -> None:
        """The server has sent a message. AssertionError for one that may not come now."""
        self.heard += 1
        self._note("<", message if isinstance(message, dict) else f"{len(message)} bytes")
        if isinstance(message, dict) and (error := self._error_in(message)) is not None:
            assert "internal" not in error, message
            self.errors += 1
        self._on_heard(message)

    def closed(self, code: int) -> None:
        """The server has closed the connection. AssertionError for one that it had to keep, or
        without saying why.
        """
        assert code != 1011, "a fault of the gateway"
        if code in (1002, 1007, 1009):
            assert self.unframed, f"{code} although every frame was right"
        elif code in self.refusals:
            assert self.errors, f"no reason before {code}"
            assert self.doomed or self.doubtful, f"{code} for what the protocol allows"
        else:
            assert code == 1000, code
            assert self.may_end() or self.doubtful or self.unframed, "closed before its time"

    def _on_refused(self) -> None:
        self.doomed = True

    def _note(self, direction: str, message: object) -> None:
        self.history.append(f"{direction} {message!s:.160}")
        del self.history[:-60]

    @abstractmethod
    def ending(self) -> list[Fields]:
        """What a caller sends who wants no more, so that `settled` will be true."""

    @abstractmethod
    def settled(self) -> bool:
        """Whether all that is due has come, if the connection is neither doomed nor doubtful."""

    @abstractmethod
    def may_end(self) -> bool:
        """Whether the server may end the connection without a fault of the caller."""

    @abstractmethod
    def _on_legal(self, message: Fields) -> None: ...

    @abstractmethod
    def _on_heard(self, message: Fields | bytes) -> None: ...

    @abstractmethod
    def _error_in(self, message: Fields) -> str | None:
        """What an error message says; None for another message."""


@dataclass(frozen=True)
class Dialect:
    """paths: with their queries. legal: messages whose form is right; refused: never right.
    conversation: what a caller sends to hear something. oracle: of a connection to a path.
    certain_end: a message behind which the server ends the connection; None: any that is none.
    is_websocket: else Wyoming's events over TCP.
    """

    paths: st.SearchStrategy[str]
    legal: st.SearchStrategy[Fields]
    refused: st.SearchStrategy[Fields]
    conversation: st.SearchStrategy[list[Fields]]
    oracle: Callable[[str], Oracle]
    certain_end: Fields | None = None
    is_websocket: bool = True
