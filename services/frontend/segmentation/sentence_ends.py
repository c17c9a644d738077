"""Whether a run of marks ends a sentence, from the text before it and as little as possible after
it.

A full-width end always does. An ASCII one needs a blank or a non-ASCII character after it (`3.14`,
`a.b/c?d`); then

* `;` ends a sentence that has at least LONG characters (`We came; we saw` is one sentence; cutting
  it by clauses would sound chopped);
* `...`, `…` and a mark before a closing quote or bracket do not end a sentence that continues in
  lower case (`well... okay`, `"Really?" she asked`);
* a comma ends a sentence that is a single word which is repeated as a whole (`Go, go, go!` is
  three, `Really, really good` is one): in one utterance the bundled voice repeats such words once
  too often; and one that is a cry alone (`Ugh, I forgot`), whose last consonant would run into the
  next word and be heard as part of it;
* a full stop does not end a sentence after a title or an initial (`Dr. Smith`, `J. Doe`), after a
  number that opens a list (`1. Wash`), after `No` and similar words before a digit (`Fig. 3`, `Apr.
  9`), after `No` before `of`, after an abbreviation before lower case (`at 5 p.m. today`, `Mon. to
  Fri.`), after `p.m.` where the hour goes on (`hours.py`), after an
  abbreviation of an amount or a unit before a digit (`approx. 5`, `6 ft. 2 in. tall`), and after
  letters with stops, streets, roads and the hour of a thing (`the U.S. Army`, `Oak St. Clinic`,
  `I-95 S. Exit`, `the 6 p.m. Delta flight`), unless the next word is one that opens sentences.

The result depends only on the text up to at most REACH characters after the marks.
"""

import re
from collections.abc import Callable

from services.frontend.segmentation.hours import HOUR, HOUR_OF_A_THING, POINT_IN_TIME, thing_follows, weekday_opens

END = re.compile(r"""[。？！；.?!;…][。？！；.?!;…"'”’)）\]】」』》›»]*|(?<=\w),""")
REACH = 40
"""Characters after the marks that may be needed for a decision; beyond them (blanks, a very long
word) the sentence ends.
"""
LONG = 60
LONGEST_REPEATED = 16
"""Letters of a repeated word at whose comma a sentence may end."""
CRIES = frozenset({"ugh"})
"""Interjections that recognisers no longer hear when a word follows at once. Common words that end
in a plosive as well (`Yep, I know`) keep theirs.
"""
_MARKS_BEHIND = frozenset(",.!?;…")
BEFORE = 24
"""Characters before the marks that are examined."""
_FULL_WIDTH = frozenset("。？！；")
_OPEN = r"(?:^|[\s(\"“‘'])"
_TITLE = re.compile(
    rf"{_OPEN}(?:Mr|Mrs|Ms|Dr|Prof|St|Ft|Mt|Sen|Rep|Gov|Gen|Lt|Capt|Sgt|Col|Maj|Rev|Hon|Adm|Cmdr|Fr|vs|Fig|e\.g|"
    rf"i\.e)\.$"
)
_STREET = re.compile(r"[A-Z0-9][a-z]+ (?:St|Dr)\.$")
_LIST_MARKER = re.compile(r"^\s*[0-9]{1,2}\.$")
_INITIAL = re.compile(rf"{_OPEN}[A-Z]\.$")
_LETTER_OF_A_LABEL = re.compile(
    r"\b(?:plan|gate|row|room|vitamin|press|group|option|page|section|letter|grade|class|type|team|part|point|platform|"
    r"terminal|answer|size|seat|exit|door|zone|block|wing|lane|bay|deck|choice|building|hall|hepatitis|floor|"
    r"a|an|the|than|or|not)\s+[A-Z]\.$",
    re.IGNORECASE,
)
_PRONOUN = re.compile(r"[a-z,]\s+I\.$")
_NUMBER = re.compile(
    rf"{_OPEN}(?:[Nn]os?|[Aa]rts?|[Ff]igs?|[Ss]ec|[Cc]h|[Vv]ols?|pp?|[Pp]g|[Ee]qs?|Ex|Op|[Aa]pt|[Ee]xt|[Rr]m|Bldg|Hwy|[Qq]ty|"
    rf"Rte|Ste|Fl|Pt|Chap|Tab|[Pp]ara|App|[Ee]p|Cl|Reg|Prop|Def|Thm|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.$"
)
_CONTINUED = (
    (HOUR, POINT_IN_TIME),
    (re.compile(rf"{_OPEN}No\.$"), re.compile("of")),
    (re.compile(rf"{_OPEN}(?:[Aa]rt|[Ff]ig|[Ss]ec|[Cc]h|[Vv]ol)\.$"), re.compile("(?!I$)[IVX]{1,6}")),
    (re.compile(rf"{_OPEN}(?:St|Ave|Blvd|Rd|Dr|Ln|Ct|Pl)\.$"), re.compile("[NS][EW]")),
)
"""Abbreviations, and a word behind them with which the sentence goes on."""
_ABBREVIATION = re.compile(
    rf"{_OPEN}(?:[ap]\.m|etc|approx|dept|est|min|max|incl|Inc|Ltd|Co|Corp|Jr|Sr|Ave|Blvd|Rd|Calif|Ariz|Conn|Fla|Mich|Minn|Tenn|"
    r"Okla|Colo|Wis|Wyo|Tex)\.$"
)
_OF_AN_AMOUNT = re.compile(
    rf"(?<![0-9]){_OPEN}(?:[Aa]pprox|[Ee]st|[Mm]in|[Mm]ax|[Ii]ncl|[Dd]ept|[Tt]el|ca|[Vv]er)\.$"
    r"|[0-9][ ]?(?:ft|in|yd|oz|lbs?|gal|sq)\.$|sq\. ft\.$"
)
_POINT_OF_A_ROAD = re.compile(r"[0-9] [NSEW]\.$")
_DAY = re.compile(rf"{_OPEN}(?:Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)\.$")
_LETTERS = re.compile(rf"{_OPEN}(?:[A-Za-z]\.){{2,}}$|{_OPEN}Ph\.D\.$")
_OPENING = r"[\s\"“‘'(\[]*"
_NEXT = re.compile(rf"{_OPENING}([^\s\"“‘'(\[])")
_WORD = re.compile(rf"{_OPENING}([^\W\d_]+)[^\w]")
_WITHOUT_BLANK = re.compile(r"(?:^|[\s\"“(!?])[A-Za-z'’]{0,16}[a-z]$")
"""Before a mark without a blank (`Hello!How are you?`): a word, and no address."""
_BEGUN_WORD = re.compile(rf"{_OPENING}[^\W\d_]")
OPENERS = frozenset(
    re.findall(
        r"[a-z]+",
        """
        a actually after all also always an and another anything anyway are as at because before both but by bye can
        cool could did do does each even every finally first for from got had has have he hello her here hey hi his
        hmm how however i if in instead is it its just last let many maybe meanwhile most my never nice no not
        nothing now of oh ok okay on once one only or otherwise our perhaps please really she should since so some
        someone something sometimes soon sorry still such sure thank thanks that the their then there therefore these
        they this those though to today tomorrow until usually was we well were what when where which while who whose
        why will with would wow yes yesterday yet you your
        """,
    )
)
"""Words that seldom continue a name."""


def ends_sentence(text: str, start: int, end: int) -> bool | None:
    """Whether the marks `text[start:end]`, a match of END, end the sentence that begins at the
    start of `text`. At least one character follows them. None when more text is needed.
    """
    marks, after = text[start:end], text[end]
    if _FULL_WIDTH & set(marks):
        return True
    if not (after.isspace() or not after.isascii()):
        return (
            marks in ("!", "?")
            and after.isupper()
            and _WITHOUT_BLANK.search(text, max(0, start - BEFORE), start) is not None
        )
    if marks == ",":
        return _is_cry(text, start) or _is_repeated(text, start)
    if marks[0] == "…":
        return _follows(text, end, str.isupper)
    if set(marks) <= {"?", "!"}:
        return True
    if set(marks) == {";"}:
        return end >= LONG
    if marks != ".":
        return _follows(text, end, _is_no_lower)
    return _full_stop(text, end)


def _is_cry(text: str, comma: int) -> bool:
    """Whether the sentence so far is one of CRIES."""
    return _first_words(text, comma).casefold() in CRIES


def _first_words(text: str, end: int) -> str:
    return text[:end].strip(" \n\"“'")


def _is_repeated(text: str, comma: int) -> bool | None:
    """Whether the sentence so far is one word that follows the comma once more, before another
    mark.
    """
    word = _first_words(text, comma)
    if not word.isalpha() or len(word) > LONGEST_REPEATED:
        return False
    after = text[comma + 1 : comma + 1 + REACH].lstrip()
    if not word.casefold().startswith(after[: len(word)].casefold()):
        return False
    if len(after) > len(word):
        return after[len(word)] in _MARKS_BEHIND
    return False if len(text) > comma + REACH else None


def _full_stop(text: str, end: int) -> bool | None:
    head = text[max(0, end - BEFORE) : end]
    if _STREET.search(head):
        return _opens(text, end)
    if _TITLE.search(head) or (end <= BEFORE and _LIST_MARKER.search(head)):
        return False
    for before, after in _CONTINUED:
        if before.search(head):
            word = _WORD.match(text, end, end + REACH)
            if word is None and _BEGUN_WORD.match(text, end) and len(text) < end + REACH:
                return None
            if word is not None and after.fullmatch(word[1]):
                return before is HOUR and weekday_opens(text, end, end + REACH)
    if _NUMBER.search(head):
        return _follows(text, end, lambda after: not after.isdigit())
    if _OF_AN_AMOUNT.search(head):
        return _follows(text, end, lambda after: not after.isdigit() and not after.islower())
    if _POINT_OF_A_ROAD.search(head):
        return _opens(text, end)
    if HOUR_OF_A_THING.search(head) and _opens(text, end) is not True:
        follows = thing_follows(text, end, end + REACH)
        if follows is None:
            return None
        if follows:
            return False
    if _DAY.search(head) or _LETTER_OF_A_LABEL.search(head) or _PRONOUN.search(head) or _ABBREVIATION.search(head):
        return _follows(text, end, _is_no_lower)
    if _INITIAL.search(head):
        return False
    return _opens(text, end) if _LETTERS.search(head) else True


def _is_no_lower(character: str) -> bool:
    return not character.islower()


def _follows(text: str, end: int, ends: Callable[[str], bool]) -> bool | None:
    """The result of `ends` for the first character after `end` that is neither a blank nor an
    opening quote or bracket.
    """
    match = _NEXT.match(text, end, end + REACH)
    if match is not None:
        return ends(match[1])
    return True if len(text) >= end + REACH else None


def _opens(text: str, end: int) -> bool | None:
    """Whether the next word, once it is complete, is one that opens sentences."""
    match = _WORD.match(text, end, end + REACH)
    if match is not None:
        return match[1][0].isupper() and match[1].lower() in OPENERS
    if _NEXT.match(text, end, end + REACH) and not _BEGUN_WORD.match(text, end):
        return True
    return True if len(text) >= end + REACH else None
