"""Wyoming: events over TCP, each request with an answer, an `error` before the server closes."""

from hypothesis import strategies as st

from tests.fuzz.dialects.dialect import Dialect, Oracle
from tests.fuzz.dialects.odd_values import Fields, said, short_text

_VOICES: st.SearchStrategy[Fields] = st.sampled_from(({}, {"name": "anna"}, {"name": "alloy"}, {"language": "de_DE"}))
_TEXTS = short_text() | said()
STOP: Fields = {"type": "synthesize-stop", "data": {}}


def _event(kind: str, **data: st.SearchStrategy[object]) -> st.SearchStrategy[Fields]:
    return st.fixed_dictionaries({"type": st.just(kind), "data": st.fixed_dictionaries(data)})


CHUNK = _event("synthesize-chunk", text=_TEXTS)
WHOLE = _event("synthesize", text=_TEXTS, voice=_VOICES, seed=st.integers(0, 9))
START = _event("synthesize-start", voice=_VOICES)
PING, DESCRIBE = _event("ping", text=short_text()), _event("describe")
NONE: tuple[Fields, ...] = (
    {},
    {"type": 5},
    {"type": "t" * 65},
    {"type": "ping", "data": [], "data_length": -1},
    {"type": "ping", "data_length": 1 << 40},
    {"type": "ping", "payload_length": True},
    {"type": "describe", "data": "x"},
)


class WyomingOracle(Oracle):
    """An answer of its kind for each event, `audio-stop` for each text with a word."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._due = dict.fromkeys(("info", "pong", "audio-stop", "synthesize-stopped"), 0)
        self._open = self._worded = self._speaking = False

    def _on_legal(self, message: Fields) -> None:
        kind, data = message["type"], message["data"]
        if kind == "describe":
            self._due["info"] += 1
        elif kind == "ping":
            self._due["pong"] += 1
        elif kind == "synthesize" and not self._open:
            self._due["audio-stop"] += 1
            self.doubtful = self.doubtful or not data["text"].strip()
        elif kind == "synthesize-start":
            self.doomed, self._open, self._worded = self._open, True, False
            self._due["synthesize-stopped"] += 1
        elif kind == "synthesize-chunk":
            self.doomed, self._worded = not self._open, self._worded or bool(data["text"].strip())
        elif kind == "synthesize-stop":
            self.doomed = not self._open
            self._due["audio-stop"] += self._worded
            self._open = self._worded = False

    def _on_heard(self, message: Fields | bytes) -> None:
        assert isinstance(message, dict)
        kind = message["type"]
        if kind in ("audio-start", "audio-chunk", "audio-stop"):
            assert self._speaking == (kind != "audio-start"), f"{kind} at the wrong time"
            self._speaking = kind != "audio-stop"
        if kind in self._due:
            self._due[kind] -= 1
            # The audio of a text may end before its caller has said that it does.
        else:
            assert kind in ("audio-start", "audio-chunk", "error"), kind

    def _error_in(self, message: Fields) -> str | None:
        return f"{message['data']['text']} ({message['data']['code']})" if message["type"] == "error" else None

    def closed(self, code: int) -> None:
        """There are no codes: an `error` in front says why."""
        super().closed(1008 if self.errors else code)

    def ending(self) -> list[Fields]:
        return [STOP] if self._open else []

    def settled(self) -> bool:
        return not any(self._due.values())

    def may_end(self) -> bool:
        return False


DIALECT = Dialect(
    paths=st.just(""),
    legal=st.one_of(CHUNK, CHUNK, WHOLE, START, st.just(STOP), PING, DESCRIBE),
    refused=st.sampled_from(NONE),
    conversation=st.builds(lambda start, chunks: [start, *chunks, STOP], START, st.lists(CHUNK, max_size=4)),
    oracle=WyomingOracle,
    is_websocket=False,
)
