"""jambonz's `/jambonz/stream`: tokens of texts, audio, an `error` for a text that is not spoken."""

from hypothesis import strategies as st

from tests.fuzz.dialects.dialect import Dialect, Oracle
from tests.fuzz.dialects.odd_values import Fields, said, short_text

_PATH = "/jambonz/stream"
_GOOD_QUERIES = ("", "?voice=anna&language=en-US&sampleRate=16000", "?encoding=mulaw&seed=7", "?voice=nobody&x=%00")
_BAD_QUERIES = ("?sampleRate=7999", "?sampleRate=x", "?encoding=opus", "?seed=-1")
_MOST_TEXTS = 50
"""Fewer than the server lets wait."""
STREAM = st.fixed_dictionaries({"type": st.just("stream"), "text": short_text() | said()})
FLUSH: Fields = {"type": "flush"}
STOP: Fields = {"type": "stop"}
OTHERS: tuple[Fields, ...] = (
    FLUSH,
    FLUSH,
    {"type": "clear"},
    {"type": "keepalive"},
    {"type": "hello", "text": "no"},
    STOP,
)
NONE: tuple[Fields, ...] = (
    {},
    {"type": 5},
    {"type": "stream", "text": 5},
    {"type": "stream", "text": None},
    {"text": "x"},
)


class JambonzOracle(Oracle):
    """`connect` first; behind `stop` the texts that wait are spoken, then the server closes."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.doomed = path.removeprefix(_PATH) in _BAD_QUERIES
        self._connected = self._stopped = False
        self._texts = 0

    def _on_legal(self, message: Fields) -> None:
        kind = message["type"]
        self._texts = 0 if kind == "clear" else self._texts + (kind == "flush")
        self.doubtful = self.doubtful or self._texts > _MOST_TEXTS
        self._stopped = self._stopped or kind == "stop"

    def _on_refused(self) -> None:
        """Behind `stop` the connection may be over before it is read."""
        self.doubtful = self.doubtful or self._stopped
        self.doomed = not self._stopped

    def _on_heard(self, message: Fields | bytes) -> None:
        if isinstance(message, dict) and message["type"] != "error":
            assert message["type"] == "connect", message
            assert not self._connected, "a second connect"
            self._connected = True
        else:
            assert self._connected or self.errors, "audio before connect"

    def _error_in(self, message: Fields) -> str | None:
        return str(message["error"]) if message["type"] == "error" else None

    def ending(self) -> list[Fields]:
        return [] if self._stopped else [STOP]

    def settled(self) -> bool:
        return False

    def may_end(self) -> bool:
        return self._stopped and self._connected


DIALECT = Dialect(
    paths=st.sampled_from((*_GOOD_QUERIES, *_GOOD_QUERIES, *_BAD_QUERIES)).map(lambda query: _PATH + query),
    legal=st.one_of(STREAM, STREAM, st.sampled_from(OTHERS)),
    refused=st.sampled_from(NONE),
    conversation=st.lists(STREAM, max_size=4).map(lambda texts: [*texts, FLUSH]),
    oracle=JambonzOracle,
)
