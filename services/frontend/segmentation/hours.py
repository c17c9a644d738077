"""Whether a sentence goes on behind the full stop of `p.m.` when a capital follows.

It does with a weekday, a month or a time zone (`at 5 p.m. EST`, `by 9 a.m. Tuesday`), unless the
sentence already has its verb and the weekday is the subject of another (`We met at 5 p.m. Monday
was busy.`), and with the name of a thing that the hour is of (`the 6 p.m. Delta flight`).
"""

import re

HOUR = re.compile(r"(?:^|[\s(\"“‘'])(?:[0-9:]{1,5})?[AaPp]\.[Mm]\.$")
POINT_IN_TIME = re.compile(
    r"(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|April|June|July|August|September|October|"
    r"November|December|UTC|GMT|[ECMP][SD]?T|CES?T|BST|IST|JST|Eastern|Central|Pacific|Mountain)\b"
)
"""Words that follow an hour."""
HOUR_OF_A_THING = re.compile(
    r"\b(?:the|an?|his|her|my|our|your|their|this|that|every|each|another)\s+[0-9:]{1,5}\s?[AaPp]\.[Mm]\.$",
    re.IGNORECASE,
)
_THING = (
    r"(?:flight|jet|plane|train|bus|ferry|shuttle|call|meeting|show|class|game|match|session|screening|service|news|tour|"
    r"departure|appointment|interview|reservation|slot|webinar|deadline)s?"
)
_NAMED_THING = re.compile(rf"\s+(?:[A-Z][\w'’&-]*\s+){{1,3}}{_THING}(?![\w'’])")
_BEGUN_NAME = re.compile(r"\s*(?:[A-Z][\w'’&-]*\s+){0,3}[\w'’&-]*$")
"""The beginning of the above, as far as the text is known."""
_WEEKDAY = re.compile(r"[\s\"“‘'(\[]*(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day(?![A-Za-z])")
_HAS_ITS_VERB = re.compile(
    r"[\s\"“‘'(]*(?:(?:I|[Ww]e|[Yy]ou|[Hh]e|[Ss]he|[Tt]hey|[Ii]t)(?:['’][a-z]{1,2})?|(?:[Pp]lease )?(?:[Mm]eet|[Cc]all|"
    r"[Cc]ome|[Ss]ee|[Jj]oin|[Aa]rrive|[Bb]e|[Vv]isit|[Ll]eave|[Rr]eturn|[Ss]tart|[Pp]ick|[Cc]heck|[Bb]oard))\s|"
    r".*\b(?:starts?|begins?|opens?|closes?|ends?|leaves?|departs?|arrives?|lands?|started|began|opened|closed|ended|left|"
    r"departed|arrived|landed|is|was|are|were)(?: [a-z]{1,12})? (?:at|by|until|till|from|around) [0-9:]{1,5}\s?"
    r"[AaPp]\.[Mm]\.$",
    re.DOTALL,
)
_EMBEDS = re.compile(
    r"\b(?:that|which|who|if|whether|because|when|since|think|thinks|thought|know|knew|hope|believe|guess|say|says|said|"
    r"hear|heard|sure|afraid|fear|suppose|mean|doubt|bet|wish|feel)\b"
)
_VERB = re.compile(
    r"(?:is|was|isn['’]t|wasn['’]t|will|won['’]t|has|had|would|can|could|should|might|works|looks|seems|went|"
    r"also|brings|begins|opens)"
)
_NEXT_WORD = re.compile(r"\s+([A-Za-z'’]+)[^\w'’]")
_BEGUN_WORD = re.compile(r"\s*[A-Za-z'’]*$")
_LONGEST = 200
"""Characters of the sentence that are examined."""


def thing_follows(text: str, end: int, limit: int) -> bool | None:
    """Whether the name of a thing follows `text[:end]`, which ends in `p.m.`: `the 6 p.m. Delta
    flight`, but not `the 5 p.m. John can't make it`. None when more text is needed, of which
    nothing behind `limit` is used.
    """
    thing = _NAMED_THING.match(text, end, limit)
    if thing is not None and (thing.end() < len(text) or len(text) >= limit):
        return True
    return None if len(text) < limit and _BEGUN_NAME.match(text, end) else False


def weekday_opens(text: str, end: int, limit: int) -> bool | None:
    """Whether a weekday after `text[:end]`, which begins a sentence and ends in `p.m.`, opens the
    next one. None when more text is needed, of which nothing behind `limit` is used.
    """
    day = _WEEKDAY.match(text, end, limit)
    if day is None or end > _LONGEST or not _HAS_ITS_VERB.match(text, 0, end) or _EMBEDS.search(text, 0, end):
        return False
    if text[day.end() : day.end() + 2] in ("'s", "’s"):
        return True
    word = _NEXT_WORD.match(text, day.end(), limit)
    if word is not None:
        return _VERB.fullmatch(word[1]) is not None
    return None if len(text) < limit and _BEGUN_WORD.match(text, day.end()) else False
