"""JSON of callers is read only if it is not nested deeply."""

import re

from cosyserve.errors import InvalidRequest

MOST_NESTED = 100
"""Arrays and objects inside each other. What reads, checks or quotes JSON calls itself for each;
nearer to Python's limit of 1,000 calls a destructor that runs meanwhile fails, too.
"""
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def require_flat(encoded: bytes, what: str) -> None:
    """Raises InvalidRequest, which names `what`, for JSON nested deeper than `MOST_NESTED`. Text
    that is not JSON may pass: reading it goes no deeper either.
    """
    if encoded.count(b"[") + encoded.count(b"{") <= MOST_NESTED:
        return
    brackets = _STRINGS.sub(b"", encoded).translate(_ONE_KIND, _ALL_BUT_BRACKETS)
    for _ in range(MOST_NESTED):
        brackets = brackets.replace(b"[]", b"")
    if b"[" in brackets:
        raise InvalidRequest(f"{what} nests arrays and objects more than {MOST_NESTED} deep")
