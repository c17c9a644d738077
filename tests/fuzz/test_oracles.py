"""The oracles of the fuzz notice a server that does not do what its protocol says."""

from collections.abc import Sequence

import pytest

from tests.fuzz.dialects import elevenlabs, jambonz, own, vllm_omni, wyoming
from tests.fuzz.dialects.dialect import Dialect, Form, Oracle
from tests.fuzz.dialects.odd_values import Fields

SETUP, HEADER, SUMMARY = {"type": "setup"}, {"type": "header"}, {"type": "summary"}
CONFIG = {"type": "session.config"}
START = {"type": "audio.start", "utterance_index": 0}
OVER = {"type": "session.done", "utterance_index": 0, "total_sentences": 0}
CONNECT = {"type": "connect"}
FINAL = {"audio": "", "isFinal": True, "alignment": None}
NAMED_FINAL = {**FINAL, "contextId": "a", "context_id": "a"}
SINGLE, MULTI = "/v1/text-to-speech/anna/stream-input?", "/v1/text-to-speech/anna/multi-stream-input?"
WHOLE = {"type": "synthesize", "data": {"text": "one"}}


def events(*kinds: str) -> list[Fields | bytes]:
    return [{"type": kind, "data": {}} for kind in kinds]


def after(dialect: Dialect, path: str, sent: Sequence[Fields], heard: Sequence[Fields | bytes]) -> Oracle:
    oracle = dialect.oracle(path)
    for message in sent:
        oracle.sends(message, Form.LEGAL)
    for answer in heard:
        oracle.hears(answer)
    return oracle


@pytest.mark.parametrize(
    ("dialect", "path", "sent", "heard", "words"),
    [
        (own.DIALECT, "", [SETUP], [b"audio"], "audio without a header"),
        (own.DIALECT, "", [SETUP], [HEADER, SUMMARY, SUMMARY], "a summary without a setup"),
        (own.DIALECT, "", [SETUP], [{"type": "error", "error": {"code": "internal"}}], "internal"),
        (vllm_omni.DIALECT, "", [CONFIG], [OVER], "session.done without input.done"),
        (vllm_omni.DIALECT, "", [CONFIG], [START, START], "audio.start within the audio"),
        (vllm_omni.DIALECT, "", [CONFIG], [b"audio"], "audio without audio.start"),
        (jambonz.DIALECT, "/jambonz/stream", [], [b"audio"], "audio before connect"),
        (elevenlabs.STREAM_INPUT, SINGLE, [{"text": ""}], [FINAL, FINAL], "something behind isFinal"),
        (elevenlabs.MULTI_STREAM_INPUT, MULTI, [], [NAMED_FINAL], "a context that has ended"),
        (wyoming.DIALECT, "", [WHOLE], events("audio-stop"), "audio-stop at the wrong time"),
    ],
)
def test_what_may_not_come_is_noticed(
    dialect: Dialect, path: str, sent: Sequence[Fields], heard: Sequence[Fields | bytes], words: str
) -> None:
    with pytest.raises(AssertionError, match=words):
        after(dialect, path, sent, heard)


@pytest.mark.parametrize(
    ("dialect", "path", "sent", "heard", "code", "words"),
    [
        (own.DIALECT, "", [SETUP], [HEADER], 1011, "a fault of the gateway"),
        (own.DIALECT, "", [SETUP], [HEADER], 1008, "no reason before 1008"),
        (own.DIALECT, "", [SETUP], [{"type": "error", "error": "x"}], 1008, "for what the protocol allows"),
        (own.DIALECT, "", [SETUP], [HEADER], 1007, "although every frame was right"),
        (own.DIALECT, "", [SETUP], [HEADER], 1006, "1006"),
        (vllm_omni.DIALECT, "", [CONFIG], [], 1000, "closed before its time"),
        (jambonz.DIALECT, "/jambonz/stream", [], [CONNECT], 1000, "closed before its time"),
        (elevenlabs.STREAM_INPUT, SINGLE, [{"text": ""}], [], 1000, "closed without isFinal"),
        (elevenlabs.STREAM_INPUT, SINGLE, [{"text": "one"}, {"text": ""}], [FINAL], 1000, "one"),
        (elevenlabs.MULTI_STREAM_INPUT, MULTI, [{"text": "one"}, {"close_socket": True}], [], 1000, "Counter"),
        (wyoming.DIALECT, "", [WHOLE], [], 1000, "closed before its time"),
    ],
)
def test_an_end_that_may_not_be_is_noticed(
    dialect: Dialect, path: str, sent: Sequence[Fields], heard: Sequence[Fields | bytes], code: int, words: str
) -> None:
    oracle = after(dialect, path, sent, heard)
    with pytest.raises(AssertionError, match=words):
        oracle.closed(code)


@pytest.mark.parametrize(
    ("dialect", "sent", "heard"),
    [
        (own.DIALECT, [SETUP, own.END], [HEADER, b"audio", SUMMARY]),
        (vllm_omni.DIALECT, [CONFIG, vllm_omni.DONE], [OVER]),
        (wyoming.DIALECT, [WHOLE], events("audio-start", "audio-chunk", "audio-stop")),
    ],
)
def test_what_is_due_is_waited_for(dialect: Dialect, sent: Sequence[Fields], heard: Sequence[Fields | bytes]) -> None:
    assert not after(dialect, "", sent, heard[:-1]).settled()
    assert after(dialect, "", sent, heard).settled()


def test_a_refused_message_has_to_end_the_connection_with_a_reason() -> None:
    oracle = after(own.DIALECT, "", [SETUP], [])
    oracle.sends(None, Form.REFUSED)
    oracle.hears({"type": "error", "error": "not JSON"})
    assert oracle.doomed
    oracle.closed(1008)
