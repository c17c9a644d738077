"""vLLM-Omni's `/v1/audio/speech/stream`: what is wrong is an `error`, then it goes on."""

import base64

from hypothesis import strategies as st

from tests.fuzz.dialects.dialect import Dialect, Oracle
from tests.fuzz.dialects.odd_values import Fields, said, short_text

_GOOD: dict[str, st.SearchStrategy[object]] = {
    "voice": st.sampled_from(("anna", "alloy", "", None)),
    "response_format": st.sampled_from(("pcm", "pcm", "wav", "flac", None)),
    "stream_audio": st.booleans(),
    "split_granularity": st.sampled_from(("none", "sentence", "clause")),
    "speed": st.sampled_from((0.5, 1.0, 2.0)),
    "seed": st.integers(0, (1 << 64) - 1),
    "language": st.sampled_from(("Auto", "English", "zh")),
    "task_type": st.sampled_from(("Base", "CustomVoice")),
    "max_new_tokens": st.integers(),
}
_BAD: tuple[Fields, ...] = (
    {"response_format": "ogg"},
    {"speed": 2.1},
    {"seed": -1},
    {"task_type": "VoiceDesign"},
    {"split_granularity": "word"},
    {"ref_audio": "https://a.example/b.wav", "voice": None},
    {"ref_audio": "data:audio/wav;base64,?", "voice": None},
    {"word_timestamps": True, "stream_audio": False},
    {"speaker_embedding": [0.5]},
)
_NONE: tuple[Fields, ...] = (
    {"type": "unknown"},
    {"type": 5},
    {},
    {"type": "input.text", "text": 5},
    {"type": "input.text", "text": None},
)
_TIMED: Fields = {"response_format": "pcm", "stream_audio": True, "word_timestamps": True}
_PLAIN = st.fixed_dictionaries({"type": st.just("session.config")}, optional=_GOOD)
CONFIG = st.builds(lambda config, more: config | more, _PLAIN, st.sampled_from(({}, {}, _TIMED)))
TEXT = st.fixed_dictionaries({"type": st.just("input.text"), "text": short_text() | said()})
DONE: Fields = {"type": "input.done"}
CLOSE: Fields = {"type": "session.close"}


class VllmOmniOracle(Oracle):
    """`session.done` for each `input.done`, an `error` for each message that is none or comes at
    the wrong time; the audio of an utterance is between its `audio.start` and its `audio.done`.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._configured = self._within = self._closing = False
        self._ended = self._over = 0
        """Utterances whose end was sent; those whose `session.done` has come."""
        self._errors_due = 0
        self._audio: int | None = None
        """Bytes of audio since `audio.start`."""
        self._answered = False

    def _on_legal(self, message: Fields) -> None:
        kind = message["type"]
        if self._closing:
            return
        if not self._configured:
            self._configured = kind == "session.config"
            self.doomed = not self._configured
        elif kind == "session.config":
            self._errors_due += self._within
        elif kind == "input.text":
            self._within = self._within or bool(message["text"])
        elif kind == "input.done":
            self._within, self._ended = False, self._ended + 1
        else:
            self._closing = True

    def _on_refused(self) -> None:
        if not self._configured:
            self.doomed = True
        elif not self._closing:
            self._errors_due += 1

    def _on_heard(self, message: Fields | bytes) -> None:
        if isinstance(message, bytes):
            self._add(len(message))
            return
        kind = message["type"]
        if kind == "error":
            return
        assert message["utterance_index"] == self._over, message
        if kind == "audio.start":
            assert self._audio is None, "audio.start within the audio"
            assert not self._answered, "a second audio.start"
            self._audio = 0
        elif kind == "audio.chunk":
            self._add(len(base64.b64decode(message["audio_b64"])))
        elif kind == "audio.done":
            assert message["total_bytes"] == self._audio, message
            assert self.errors or not message["error"], "an utterance failed, and nothing says why"
            self._audio, self._answered = None, True
        else:
            assert kind == "session.done", message
            assert self._audio is None, "session.done within the audio"
            assert self._over < self._ended or self.doubtful, "session.done without input.done"
            assert message["total_sentences"] == self._answered, message
            self._over, self._answered = self._over + 1, False

    def _add(self, size: int) -> None:
        assert self._audio is not None, "audio without audio.start"
        self._audio += size

    def _error_in(self, message: Fields) -> str | None:
        return f"{message['message']} ({message['code']})" if message["type"] == "error" else None

    def ending(self) -> list[Fields]:
        if not self._configured:
            return [{"type": "session.config"}]
        return [DONE] if self._within and not self._closing else []

    def settled(self) -> bool:
        return self._over == self._ended and self.errors >= self._errors_due and not self._closing

    def may_end(self) -> bool:
        return self._closing


DIALECT = Dialect(
    paths=st.just("/v1/audio/speech/stream"),
    legal=st.one_of(CONFIG, TEXT, TEXT, TEXT, st.sampled_from((DONE, DONE, DONE, CLOSE))),
    refused=st.builds(lambda config, bad: config | bad, CONFIG, st.sampled_from(_BAD)) | st.sampled_from(_NONE),
    conversation=st.builds(lambda config, texts: [config, *texts, DONE], CONFIG, st.lists(TEXT, max_size=4)),
    oracle=VllmOmniOracle,
    certain_end=CLOSE,
)
