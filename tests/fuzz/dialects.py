"""The WebSockets of the gateway as the fuzz knows them: where they are, what their callers send,
and what an error looks like. A further dialect is a further entry of DIALECTS.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.strategies import texts

Fields = dict[str, Any]
HUGE: tuple[Any, ...] = (
    10**400,
    -(10**30),
    1 << 64,
    (1 << 63) - 1,
    1e308,
    float("inf"),
    float("nan"),
    -0.0,
    0,
    -1,
    None,
    True,
    "",
    "\ud83d",
    "\udc00x",
    "\0",
    [],
    {},
    [[[]]],
    "x" * 3_000,
)
"""Values that no field or hardly one allows."""


@dataclass(frozen=True)
class Dialect:
    """path: with its query. messages: JSON objects as callers send them, valid ones and ones with
    values out of range. is_error: whether a message of the server is an answer to a bad one.
    is_binary_allowed: whether binary messages mean anything.
    """

    path: str
    messages: st.SearchStrategy[Fields]
    is_error: Callable[[Mapping[str, Any]], bool]
    is_binary_allowed: bool = False


def short_text() -> st.SearchStrategy[str]:
    """Up to 60 characters: the scripted voice speaks a tenth of a second for each letter."""
    return texts().map(lambda text: text[:60])


def with_huge(fields: st.SearchStrategy[Fields]) -> st.SearchStrategy[Fields]:
    """The same, with up to two fields of another value, left out or unknown."""

    def changed(message: Fields, names: list[int], values: list[Any], extra: bool) -> Fields:
        keys = [*message, "unknown"] if extra else list(message)
        return {**message, **{keys[name % len(keys)]: value for name, value in zip(names, values, strict=False)}}

    names, values = st.lists(st.integers(0, 9), max_size=2), st.lists(st.sampled_from(HUGE), max_size=2)
    return st.builds(changed, fields, names, values, st.booleans())


SETUP = st.fixed_dictionaries(
    {"type": st.just("setup")},
    optional={
        "voice": st.sampled_from(("", "anna", "alloy", "default")),
        "audio": st.sampled_from(("binary", "json")),
        "encoding": st.sampled_from(("LINEAR16", "MULAW", "ALAW", "FLOAT32", "linear16", "mulaw")),
        "sample_rate": st.sampled_from((8_000, 24_000, 48_000, 7_999, 48_001)),
        "mode": st.sampled_from(("sentences", "tokens")),
        "speed": st.sampled_from((0.5, 1.0, 2.0, 0.49)),
        "seed": st.integers(0, (1 << 64) - 1),
        "language": st.sampled_from(("", "en", "zh-CN", "!")),
        "instructions": st.sampled_from(("", "calmly")),
        "onset": st.sampled_from(("trimmed", "natural")),
        "retry": st.booleans(),
        "buffer_delay_milliseconds": st.sampled_from((0, 50, 5_001)),
        "idle_timeout_milliseconds": st.sampled_from((0, 500, -1)),
    },
)
OWN = st.one_of(
    SETUP,
    SETUP,
    st.fixed_dictionaries({"type": st.just("text"), "text": short_text()}),
    st.fixed_dictionaries({"type": st.sampled_from(("flush", "cancel", "end"))}),
)
DIALECTS: dict[str, Dialect] = {
    "cosyserve": Dialect(
        path="/v1/audio/stream", messages=OWN, is_error=lambda message: message.get("type") == "error"
    ),
}


def broken_json() -> st.SearchStrategy[str | bytes]:
    """Text messages that are no JSON object of a dialect, or no text."""
    return st.one_of(
        st.sampled_from(("", "{", "[]", "null", '"x"', "1" * 5_000, "[" * 50_000, '{"type": "\\ud800"}', "\0")),
        st.sampled_from((b"\xff\xfe", b'{"type": "\xed\xa0\x80"}', b"\xc0\x80")),
        st.recursive(st.none() | st.floats() | st.text(max_size=5), st.lists, max_leaves=8).map(json.dumps),
        st.text(max_size=40),
    )
