"""ElevenLabs' `stream-input` and `multi-stream-input`: contexts, from their text to `isFinal`."""

from collections import Counter

from hypothesis import strategies as st

from tests.fuzz.dialects.dialect import Dialect, Oracle
from tests.fuzz.dialects.odd_values import Fields, said, short_text

IMPATIENT = "inactivity_timeout=0.2"
_GOOD_QUERIES = (
    "output_format=pcm_24000",
    "output_format=ulaw_8000&auto_mode=true&sync_alignment=true&seed=7",
    "output_format=mp3_22050_32&language_code=en&model_id=x",
    f"output_format=pcm_8000&mode=tokens&{IMPATIENT}",
)
_BAD_QUERIES = (
    "output_format=pcm_1",
    "inactivity_timeout=0",
    "inactivity_timeout=nan",
    "seed=-1",
    "mode=x",
    "auto_mode=perhaps",
)
_SETTINGS = st.fixed_dictionaries({}, optional={"speed": st.sampled_from((0.5, 1.0)), "stability": st.floats(0, 1)})
_CONFIG = st.fixed_dictionaries({}, optional={"seed": st.integers(0, 9), "chunk_length_schedule": st.just([120])})
NONE: tuple[Fields, ...] = (
    {},
    {"text": 5},
    {"text": None},
    {"text": "x", "flush": "perhaps"},
    {"text": "x", "context_id": "n" * 129},
    {"text": "x", "voice_settings": {"speed": "fast"}},
    {"text": "x", "voice_settings": []},
    {"text": "x", "generation_config": {"seed": -1}},
)
TEXT = st.fixed_dictionaries(
    {"text": short_text() | said()},
    optional={
        "flush": st.booleans(),
        "voice_settings": _SETTINGS,
        "generation_config": _CONFIG,
        "try_trigger_generation": st.booleans(),
        "xi_api_key": st.just("none"),
    },
)
END: Fields = {"text": ""}
KEY: Fields = {"xi_api_key": "none"}


def paths(endpoint: str) -> st.SearchStrategy[str]:
    queries = [f"anna/{endpoint}?{query}" for query in (*_GOOD_QUERIES, *_GOOD_QUERIES, *_BAD_QUERIES)]
    return st.sampled_from((*queries, f"nobody/{endpoint}")).map(lambda rest: f"/v1/text-to-speech/{rest}")


class _ElevenLabsOracle(Oracle):
    """What both endpoints have in common."""

    refusals = frozenset({1008, 1013})

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.doomed = path.rpartition("?")[2] in _BAD_QUERIES
        self._ended = False
        """The caller wants no more of the connection."""

    def _on_refused(self) -> None:
        """Behind the end the connection may be over before it is read."""
        if self.may_end():
            self.doubtful = True
        else:
            self.doomed = True

    def _error_in(self, message: Fields) -> str | None:
        return f"{message['message']} ({message['error']})" if "error" in message else None

    def settled(self) -> bool:
        return False

    def may_end(self) -> bool:
        return self._ended or IMPATIENT in self.path


class StreamInputOracle(_ElevenLabsOracle):
    """One context: an empty text ends it, `isFinal` follows, then the server closes."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.doubtful = "/nobody/" in path  # noticed when there is something to speak
        self._final = False
        self._written = self._timed = ""
        """Letters and digits of the text that was sent, and of those whose times were heard."""

    def _on_legal(self, message: Fields) -> None:
        text = message.get("text")
        if not self._ended:
            self._written += _letters(text or "")
        self._ended = self._ended or (text == "" and not message.get("flush"))

    def _on_heard(self, message: Fields | bytes) -> None:
        assert isinstance(message, dict), "a binary message"
        assert not self._final or ("error" in message and self.doubtful), "something behind isFinal"
        if "error" not in message:
            self._final = message["isFinal"]
            alignment = message["alignment"]
            if alignment is not None:
                assert (
                    len(alignment["chars"]) == len(alignment["charStartTimesMs"]) == len(alignment["charDurationsMs"])
                )
                self._timed += _letters("".join(alignment["chars"]))

    def closed(self, code: int) -> None:
        super().closed(code)
        if code == 1000:
            assert self._final, "closed without isFinal"
            if not self.doubtful and IMPATIENT not in self.path:
                assert self._timed == self._written, (self._timed, self._written)

    def ending(self) -> list[Fields]:
        return [] if self._ended else [END]


class MultiStreamInputOracle(_ElevenLabsOracle):
    """Every context that was begun has an `isFinal` of its name before the connection is closed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._texts: Counter[str] = Counter()
        """Messages with text by context: each may have begun another one."""
        self._finals: Counter[str] = Counter()

    def _on_legal(self, message: Fields) -> None:
        if self._ended:
            return
        self._ended = bool(message.get("close_socket"))
        if not self._ended and not message.get("close_context") and message.get("text"):
            self._texts[message.get("context_id") or "default"] += 1

    def _on_heard(self, message: Fields | bytes) -> None:
        assert isinstance(message, dict), "a binary message"
        if "contextId" not in message:
            assert "error" in message, message
            return
        name = message["contextId"]
        assert name == message["context_id"]
        assert self._finals[name] < self._texts[name] or self.doubtful, "a message of a context that has ended"
        self._finals[name] += bool(message.get("isFinal"))

    def closed(self, code: int) -> None:
        super().closed(code)
        if code == 1000 and IMPATIENT not in self.path:
            assert self._texts.keys() <= {name for name, finals in self._finals.items() if finals}, self._finals

    def ending(self) -> list[Fields]:
        return [] if self._ended else [{"close_socket": True}]


def _letters(text: str) -> str:
    return "".join(character for character in text if character.isalnum())


STREAM_INPUT = Dialect(
    paths=paths("stream-input"),
    legal=st.one_of(TEXT, TEXT, TEXT, st.just(END), st.just(KEY), st.just({"text": "", "flush": True})),
    refused=st.sampled_from(NONE),
    conversation=st.lists(TEXT, max_size=4).map(lambda texts: [{"text": " "}, *texts, END]),
    oracle=StreamInputOracle,
)
_NAMES = st.sampled_from(("a", "b", "c", "d", ""))
_NAMED = st.builds(lambda message, name: message | {"context_id": name}, TEXT, _NAMES)
_CLOSE_CONTEXT = _NAMES.map(lambda name: {"context_id": name, "close_context": True})
_FLUSH = _NAMES.map(lambda name: {"context_id": name, "flush": True})
MULTI_STREAM_INPUT = Dialect(
    paths=paths("multi-stream-input"),
    legal=st.one_of(TEXT, _NAMED, _NAMED, _NAMED, _NAMED, _CLOSE_CONTEXT, _FLUSH, st.just({"close_socket": True})),
    refused=st.sampled_from(NONE),
    conversation=st.builds(
        lambda name, texts: [
            *({**text, "context_id": name} for text in texts),
            {"context_id": name, "flush": True},
            {"context_id": name, "close_context": True},
        ],
        _NAMES,
        st.lists(TEXT, max_size=4),
    ),
    oracle=MultiStreamInputOracle,
)
