"""The supported elements with their attributes and the values of these, and the size limits of a
document. A function of a value raises ValueError with the value and the allowed range, without its
position.
"""

import re

from services.frontend.segmentation.pauses import LONGEST, SHORTEST

READ = {
    "speak": {"version", "onlangfailure"},
    "p": set[str](),
    "s": set[str](),
    "break": {"time", "strength"},
    "sub": {"alias"},
    "say-as": {"interpret-as", "format"},
    "phoneme": {"alphabet", "ph"},
    "prosody": {"rate"},
    "lang": {"onlangfailure"},
}
"""Elements that are read, each with its attributes; `id`, `xml:...` and `xmlns...` are allowed
everywhere.
"""
TEXT_ALONE = frozenset(("sub", "say-as", "phoneme"))
"""These may contain text only, no element that is read."""
SENTENCES = frozenset(("p", "s"))
NOT_READ = frozenset(("metadata", "meta", "desc", "lexicon"))
"""Their content is metadata and is not part of the text."""
DEEPEST = 32
"""Nesting depth of elements."""
LONGEST_DOCUMENT = 20_000
"""Characters."""
LONGEST_TAG = 4_000
"""Characters of a tag, comment or reference: it is scanned again with each fragment that continues
it.
"""
LONGEST_CONTENT = 200
"""Characters in an element of TEXT_ALONE, and in its `alias` or `ph`."""
MOST_NAMED = 40
"""Names of elements and attributes in warnings; each is reported once and truncated."""
LONGEST_NAME = 40


RATES = {"x-slow": 0.5, "slow": 0.75, "medium": 1.0, "default": 1.0, "fast": 1.25, "x-fast": 1.5}
SLOWEST, FASTEST = 0.5, 2.0
"""Limits of the product of all rates and the speed of the request."""
STRENGTHS = {"none": 0, "x-weak": 100, "weak": 200, "medium": 400, "strong": 700, "x-strong": 1200}
"""Milliseconds."""
_NUMBER = r"[0-9]{1,6}(?:\.[0-9]{1,6})?|\.[0-9]{1,6}"
_TIME = re.compile(rf"\+?(?P<number>{_NUMBER})(?P<unit>ms|s)")
_PERCENT = re.compile(rf"(?P<sign>[+-]?)(?P<number>{_NUMBER})%")
_FACTOR = re.compile(rf"(?:{_NUMBER})")
_SHOWN = 40


def rate_of(value: str) -> float:
    """The factor of a `rate`: a word of RATES, a factor (`1.2`), a percentage of the surrounding
    rate (`120%`), or a relative change (`+20%`).
    """
    word = value.strip().lower()
    if word in RATES:
        return RATES[word]
    if percent := _PERCENT.fullmatch(word):
        share = float(percent["number"]) / 100
        return {"": share, "+": 1 + share, "-": 1 - share}[percent["sign"]]
    if _FACTOR.fullmatch(word):
        return float(word)
    raise ValueError(
        f"{quoted(value)}, expected one of {', '.join(RATES)}, a factor such as 1.2, or a percentage such as 120% or "
        "+20%"
    )


def break_milliseconds(time: str | None, strength: str | None) -> int:
    """Duration of a `break`: its time, else its strength, else strength medium. 0: no pause."""
    if time is not None:
        match = _TIME.fullmatch(time.strip().lower())
        if match is None:
            raise ValueError(f"time is {quoted(time)}, expected {SHORTEST}ms to {LONGEST}ms, such as 300ms or 1.5s")
        milliseconds = round(float(match["number"]) * (1000 if match["unit"] == "s" else 1))
        if not SHORTEST <= milliseconds <= LONGEST:
            raise ValueError(f"time is {milliseconds} ms, allowed are {SHORTEST} to {LONGEST} ms")
        return milliseconds
    word = "medium" if strength is None else strength.strip().lower()
    if word not in STRENGTHS:
        raise ValueError(f"strength is {quoted(strength or '')}, expected one of {', '.join(STRENGTHS)}")
    return STRENGTHS[word]


def quoted(value: str) -> str:
    """The beginning of a value, quoted."""
    return repr(value[:_SHOWN])
