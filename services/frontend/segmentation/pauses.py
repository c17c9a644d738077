"""Pauses in a text: `[pause 300ms]`, `[pause 1.5s]`, `<break time="300ms"/>`; 10 to 5000 ms each.

Consecutive pauses add up. A pause ends the sentence before it. Anything that does not have exactly
this form is ordinary text.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from cosyserve.errors import InvalidRequest

SHORTEST, LONGEST, LONGEST_TOGETHER = 10, 5_000, 60_000
"""Milliseconds."""
LONGEST_TAG = 48
_TIME = r"(?P<{0}>[0-9]{{1,6}}(?:\.[0-9]{{1,3}})?)[ ]?(?P<{0}_unit>ms|s)"
TAG = re.compile(
    rf"""\[pause[ :][ ]?{_TIME.format("plain")}\]"""
    rf"""|<break[ ]time=(?P<quote>["']){_TIME.format("quoted")}(?P=quote)[ ]?/?>""",
    re.IGNORECASE,
)
_BEGUN = re.compile(
    r"""\[(?:p(?:a(?:u(?:s(?:e(?:[ :][ 0-9.ms]{0,14})?)?)?)?)?)?$
      | <(?:b(?:r(?:e(?:a(?:k(?:[ ](?:t(?:i(?:m(?:e(?:=["'\ 0-9.ms/]{0,18})?)?)?)?)?)?)?)?)?)?)?$""",
    re.IGNORECASE | re.VERBOSE,
)


class Pause(NamedTuple):
    """Silence at this position of the text."""

    milliseconds: int


def passages(text: str) -> Iterator[str | Pause]:
    """Yield the text between pauses and the pauses, in order. Raises InvalidRequest for a pause
    outside its range.
    """
    start = 0
    for tag in TAG.finditer(text):
        if tag.start() > start:
            yield text[start : tag.start()]
        yield _pause(tag)
        start = tag.end()
    if start < len(text):
        yield text[start:]


def added(waiting: int, pause: Pause) -> int:
    """The sum of the `waiting` milliseconds and the next pause. Raises InvalidRequest above 60
    s.
    """
    if waiting + pause.milliseconds > LONGEST_TOGETHER:
        raise InvalidRequest(
            f"consecutive pauses add up to {waiting + pause.milliseconds} ms, allowed are at most {LONGEST_TOGETHER} ms"
        )
    return waiting + pause.milliseconds


def open_tag(head: str) -> int:
    """The index at the end of `head` of an incomplete tag that may become a pause; -1 when there is
    none.
    """
    start = max(0, len(head) - LONGEST_TAG)
    place = max(head.rfind("[", start), head.rfind("<", start))
    return place if place >= 0 and _BEGUN.match(head, place) else -1


def _pause(tag: re.Match[str]) -> Pause:
    kind = "plain" if tag["plain"] else "quoted"
    milliseconds = round(float(tag[kind]) * (1000 if tag[f"{kind}_unit"].lower() == "s" else 1))
    if not SHORTEST <= milliseconds <= LONGEST:
        raise InvalidRequest(f"text asks for a pause of {milliseconds} ms, allowed are {SHORTEST} to {LONGEST} ms")
    return Pause(milliseconds)
