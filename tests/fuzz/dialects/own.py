"""`/v1/audio/stream`: utterances one after the other, each from a setup to a summary."""

from hypothesis import strategies as st

from tests.fuzz.dialects.dialect import Dialect, Oracle
from tests.fuzz.dialects.odd_values import Fields, said, short_text

_AUDIO_NEWS = ("words", "warning", "audio")
_GOOD: dict[str, st.SearchStrategy[object]] = {
    "voice": st.sampled_from(("", "anna", "alloy")),
    "audio": st.sampled_from(("binary", "json")),
    "encoding": st.sampled_from(("linear16", "mulaw", "alaw")),
    "sample_rate": st.sampled_from((8_000, 24_000, 48_000)),
    "mode": st.sampled_from(("sentences", "tokens")),
    "speed": st.sampled_from((0.5, 1.0, 2.0)),
    "seed": st.integers(0, (1 << 64) - 1),
    "language": st.sampled_from(("", "en", "zh-CN")),
    "onset": st.sampled_from(("trimmed", "natural")),
    "retry": st.booleans(),
    "buffer_delay_milliseconds": st.sampled_from((0, 50)),
    "idle_timeout_milliseconds": st.sampled_from((0, 30_000)),
}
_BAD: tuple[Fields, ...] = (
    {"voice": "nobody"},
    {"audio": "wav"},
    {"encoding": "LINEAR16"},
    {"sample_rate": 7_999},
    {"sample_rate": 48_001},
    {"speed": 0.49},
    {"seed": 1 << 64},
    {"language": "!"},
    {"buffer_delay_milliseconds": 5_001},
    {"idle_timeout_milliseconds": -1},
    {"idle_timeout_milliseconds": 30_001},
    {"traceparent": "00-x"},
    {"sample-rate": 8_000},
)
SETUP = st.fixed_dictionaries({"type": st.just("setup")}, optional=_GOOD).map(
    lambda setup: setup if setup.get("mode") != "tokens" else {**setup, "buffer_delay_milliseconds": 0}
)
TEXT = st.fixed_dictionaries({"type": st.just("text"), "text": short_text() | said()})
COMMAND = st.fixed_dictionaries({"type": st.sampled_from(("flush", "cancel", "end"))})
END: Fields = {"type": "end"}


class OwnOracle(Oracle):
    """A summary for each setup; what else comes is between its header and its summary."""

    refusals = frozenset({1008, 1013})

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._setups = self._summaries = 0
        self._state = "before"
        self._headed = False

    def _on_legal(self, message: Fields) -> None:
        kind = message["type"]
        if self._state == "before":
            self._setups, self._state, self.doomed = 1, "open", kind != "setup"
        elif self._state == "open":
            self._state = {"cancel": "cancelled", "end": "ended"}.get(kind, "open")
            self.doomed = kind == "setup"
        elif kind == "setup":
            self._setups, self._state = self._setups + 1, "open"
        elif self._state == "ended" and kind != "cancel":
            self.doubtful = True  # refused before the summary, ignored behind it
        elif kind == "cancel":
            self._state = "cancelled"

    def _on_heard(self, message: Fields | bytes) -> None:
        kind = "audio" if isinstance(message, bytes) else message["type"]
        if kind == "header":
            assert not self._headed, "a second header"
            assert self._summaries < self._setups, "a header without a setup"
            self._headed = True
        elif kind == "summary":
            self._summaries, self._headed = self._summaries + 1, False
            assert self._summaries <= self._setups, "a summary without a setup"
        else:
            assert kind == "error" or (kind in _AUDIO_NEWS and self._headed), f"{kind} without a header"

    def _error_in(self, message: Fields) -> str | None:
        return str(message["error"]) if message["type"] == "error" else None

    def ending(self) -> list[Fields]:
        return [END] if self._state == "open" else []

    def settled(self) -> bool:
        return self._summaries == self._setups

    def may_end(self) -> bool:
        return False


DIALECT = Dialect(
    paths=st.just("/v1/audio/stream"),
    legal=st.one_of(SETUP, SETUP, TEXT, COMMAND),
    refused=st.builds(lambda setup, bad: setup | bad, SETUP, st.sampled_from(_BAD)),
    conversation=st.builds(
        lambda setup, texts, last: [setup, *texts, {"type": last}],
        SETUP,
        st.lists(TEXT, max_size=4),
        st.sampled_from(("end", "end", "cancel")),
    ),
    oracle=OwnOracle,
)
