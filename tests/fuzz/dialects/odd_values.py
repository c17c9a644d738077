"""Values that hardly any field allows, and what is no message at all."""

import json
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


def short_text() -> st.SearchStrategy[str]:
    """Up to 24 characters: the scripted voice speaks a tenth of a second for each letter."""
    return texts().map(lambda text: text[:24])


def said() -> st.SearchStrategy[str]:
    """Up to three words that every protocol takes."""
    return st.lists(st.sampled_from(("Hello", "so, ", "it.", "works!", "12", "你好。", " ")), max_size=3).map(" ".join)


def with_huge(fields: st.SearchStrategy[Fields]) -> st.SearchStrategy[Fields]:
    """The same, with up to two fields of another value, left out or unknown."""

    def changed(message: Fields, names: list[int], values: list[Any], extra: bool) -> Fields:
        keys = [*message, "unknown"] if extra or not message else list(message)
        return {**message, **{keys[name % len(keys)]: value for name, value in zip(names, values, strict=False)}}

    names, values = st.lists(st.integers(0, 9), max_size=2), st.lists(st.sampled_from(HUGE), max_size=2)
    return st.builds(changed, fields, names, values, st.booleans())


def broken_json() -> st.SearchStrategy[str | bytes]:
    """Text messages that are no JSON object of a protocol; bytes: no UTF-8."""
    return st.one_of(
        st.sampled_from(("", "{", "[]", "null", '"x"', "1" * 5_000, "[" * 50_000, '{"type": "\\ud800"}', "\0")),
        st.sampled_from((b"\xff\xfe", b'{"type": "\xed\xa0\x80"}', b"\xc0\x80")),
        st.recursive(st.none() | st.floats() | st.text(max_size=5), st.lists, max_leaves=8).map(json.dumps),
        st.text(max_size=40),
    )


def is_unicode(message: Fields) -> bool:
    """Whether a message holds no half of a surrogate pair, which no protocol takes."""
    try:
        json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
