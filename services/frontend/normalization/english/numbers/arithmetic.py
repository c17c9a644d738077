"""Signs between two numbers: arithmetic and comparison, fractions, marks, blood pressure, scores
and ranges; and signs before a number.
"""

import re

from services.frontend.normalization.english import numerals
from services.frontend.normalization.english.numerals import (
    ALONE,
    FRACTION_SIGNS,
    NUMBER,
    QUANTITY,
    amount,
    plural,
    short,
    spoken_quantity,
)
from services.frontend.text.rules import Rule, any_of

_BETWEEN = {
    "≠": "is not equal to", "!=": "is not equal to", "≤": "is less than or equal to", "<=": "is less than or equal to",
    "≥": "is greater than or equal to", ">=": "is greater than or equal to", "<": "is less than",
    ">": "is greater than", "==": "equals", "=": "equals", "≈": "is approximately", "≡": "is equivalent to",
    "×": "times", "·": "times", "*": "times", "÷": "divided by", "+": "plus", "±": "plus or minus", "−": "minus",
    "∝": "is proportional to", "∈": "is in", "∪": "union", "∩": "intersection", "→": "to", "->": "to", "=>": "to",
    "⇒": "implies",
}  # fmt: skip
_IN_FRONT = {
    "<": "less than", ">": "more than", "≤": "at most", "<=": "at most", "≥": "at least", ">=": "at least",
    "≈": "about", "~": "about", "∼": "about", "±": "plus or minus", "+/-": "plus or minus", "+": "plus",
}  # fmt: skip
_OPERAND = r"[0-9A-Za-zπθαβγλµσΔ∞√)\]°%²³¹⁰-⁹]"
_NAME = re.compile(
    "(?<![A-Za-z0-9'’])(?P<name>a)(?= (?:is (?:not |less |greater |approximately |equal )|equals|plus|minus|times|"
    r"divided by)\b)|(?<=equal to )a(?![A-Za-z'’])|(?<=than )a(?= (?:in|and|or|is)\b|[.,]|$)"
)
_WORD_IN_FRONT = re.compile(
    r"(?<![A-Za-z])(?!(?:one|two|three|four|five|six|seven|eight|nine|ten|zero|[a-z]{3,6}teen|[a-z]{3,5}ty|eleven|"
    r"twelve|hundred|thousand|million|squared|cubed|pi|it|that)[ ]?$)[A-Za-z]{2,20}[ ]?$"
)
_ASKED = re.compile(r"(?:^|[.?!] |[Ww]hether |[Bb]ecause )[Ii]s [^.?! ]{1,12}[ ]?$")
_DIMENSION = (
    r"[ -]?(?:feet|foot|ft|inch(?:es)?|in|cm|mm|m|meters?|pixels?|px|photos?|prints?|rooms?|rug|grid|matrix|matrices|"
    r"array|board|image|display|resolution|tiles?|pan|plywood|panel|frame|poster|paper|sheet|table|lot|area)\b"
)


def _between(match: re.Match[str]) -> str:
    """The word of the sign with its blanks; without a verb when a whole word precedes it (`where
    age >= 21`).
    """
    text, word = match.string, _BETWEEN[match["sign"]]
    if word.startswith("is ") and (
        _WORD_IN_FRONT.search(text, max(0, match.start() - 24), match.start()) or _ASKED.search(text, 0, match.start())
    ):
        word = word.removeprefix("is ")
    return f"{'' if text[match.start() - 1] == ' ' else ' '}{word} "


def _multiplied(match: re.Match[str]) -> str:
    left, right = match["left"], match["right"]
    by = (len(left) >= 3 and len(right) >= 3) or re.match(_DIMENSION, match.string[match.end() : match.end() + 14])
    if (
        re.fullmatch("[1-9][0-9]?[x×][1-9][0-9]?", match[0])
        and not _EQUALS.match(match.string, match.end())
        and _ARTICLE.search(match.string, max(0, match.start() - 12), match.start())
    ):
        return f"{amount(left)} by {amount(right)}"
    if match["several"]:
        return f"{amount(left)} by {plural(amount(right))}"
    third = f" by {amount(match['third'])}" if match["third"] else ""
    if by and len(left) >= 3 and (left + right).isdigit():
        return f"{short(left)} by {short(right)}"
    return f"{amount(left)} {'by' if by or third else 'times'} {amount(right)}{third}"


_ARTICLE = re.compile(
    r"\b(?:an?|the|his|her|my|your|our|their|this|that|each|every|another|old|new)[ ]$", re.IGNORECASE
)
"""In front of a thing that is called by its two dimensions: a 2x4."""
_EQUALS = re.compile("[ ]?=")


IN_FRONT: tuple[Rule, ...] = (
    (re.compile(r"(?<![\w)\]%°./,-])(?<![0-9] )-(?=[$£€]?\.?[0-9])"), "negative "),
    (
        re.compile(rf"(?:^|(?<=[ (\"“]))(?P<sign>{any_of(_IN_FRONT)})(?=[$£€¥₹]?\.?[0-9])"),
        lambda match: f"{_IN_FRONT[match['sign']]} ",
    ),
)
RULES: tuple[Rule, ...] = (
    # A path through menus.
    (re.compile(r"(?<=[a-z]) (?:>|→|->) (?=[A-Z][a-z])"), ", "),
    (
        re.compile(
            rf"(?<![\w.,])(?P<left>{NUMBER})[ ]?[x×][ ]?(?P<right>{NUMBER})(?:[ ]?[x×][ ]?(?P<third>{NUMBER}))"
            r"?(?P<several>s?)(?![\w]|[.,][0-9])"
        ),
        _multiplied,
    ),
    (re.compile(r"(?<=[0-9)])x(?=[ ]?[-+−=*/^<>²³)])|(?<=[-+=*/(][0-9])x\b|(?<=[-+=*/] [0-9])x\b"), " x"),
    (re.compile(r"(?<=[0-9)])(?P<sign>[x×])(?![A-Za-z])(?=[.,;:!? ]|$)"), " times"),
    (
        re.compile(
            rf"(?<={_OPERAND})[ ]?(?P<sign>{any_of(_BETWEEN)})[ ]?(?=[-−(√±]?{_OPERAND}|\()".replace(
                "(?<=" + _OPERAND + ")[ ]?", f"(?:(?<={_OPERAND})|(?<={_OPERAND}[ ]))"
            )
        ),
        _between,
    ),
    (
        re.compile(
            r"(?<=[0-9A-Za-z)] )[-−](?= [0-9]+ ?=)|(?<=\b[a-z] )[-−](?= [a-z0-9]\b)|(?<=[0-9)] )[-−](?= [0-9(])"
        ),
        "minus",
    ),
    (re.compile(r"(?<=[0-9] )/(?= [0-9])"), "divided by"),
    (
        re.compile(rf"(?<![\w)\]%°-])(?P<sign>{any_of(_IN_FRONT)})[ ]?(?=[$£€¥₹]?\.?[0-9])"),
        lambda match: f"{_IN_FRONT[match['sign']]} ",
    ),
    (re.compile(r"(?<= [A-FO])-(?=[.,;!?]|$| (?:in|on|for|and|or|grade)\b)|(?<= AB)-(?=[ .,;!?]|$)"), " minus"),
    (re.compile(r"(?<=[0-9])\+(?=[ .,;:!?)]|$)"), " plus"),
    (_NAME, "A"),
)


_MARKED = re.compile(
    r"\b(?:got|get|gets|getting|scored?|scores|scoring|rated|rating|rate|grade|graded|marks?|answered|gave|give|passed)\b[^.!?\n]{0,24}$",
    re.IGNORECASE,
)
_COUNTED = re.compile(
    r"\b(?:page|step|part|slide|question|episode|task|day|round|attempt|chapter|lesson|level|item|exercise|problem|"
    r"stage|phase|photo|image|figure|game|lap|rep|message|file|track|batch|trial|section|unit|module|video|tip|"
    r"card|clip|scene|disc|volume|(?P<verb>match|row|season|set|test))[ ]$",
    re.IGNORECASE,
)
_PORTION = re.compile(r"[ ](?:of|an?|cups?|teaspoons?|tablespoons?|tsp|tbsp|inch(?:es)?|miles?|hours?|days?)\b")
"""Behind a fraction: `set 1/3 of it aside`, where set 1/3 is the first of three."""
_PRESSURE = re.compile(r"\b(?:pressure|BP|bp|reading)\b[^.!?\n]{0,24}$")
_JUDGED = re.compile(
    "[ ](?:on|for|in)[ ](?:the|my|his|her|our|their|this|that|a)?[ ]?(?:quiz|test|exam|final|midterm|homework|paper|"
    r"assignment|review|survey)\b|[ ](?:stars?|points?|rating|correct|questions)\b"
)
_RHYTHM = re.compile(r"[ -](?:time|rhythms?|meters?|metres?|beats?|grooves?|signature|feel|pattern)\b")
_YEARS = r"(?:1[1-9]|20)[0-9]{2}"


def _slash(match: re.Match[str]) -> str:
    above, below = match["above"], match["below"]
    before, left, right = match.string[max(0, match.start() - 40) : match.start()], int(above), int(below)
    if (left == right and left > 1) or (right in (2, 4, 8, 16) and _RHYTHM.match(match.string, match.end())):
        return f"{numerals.cardinal(above)} {numerals.cardinal(below)}"
    if _PRESSURE.search(before) or (left > right and left >= 80 and 40 <= right <= 140):
        hundreds = numerals.short(above) if len(above) == 3 else numerals.cardinal(above)
        return f"{hundreds} over {numerals.cardinal(below)}"
    counted = _COUNTED.search(before)
    if counted is not None and not (counted["verb"] and _PORTION.match(match.string, match.end())):
        return f"{numerals.cardinal(above)} of {numerals.cardinal(below)}"
    marked = _MARKED.search(before) is not None or _JUDGED.match(match.string, match.end()) is not None
    if (
        (marked and right >= 5)
        or (right == 100 and left > 1)
        or (right == 10 and left > 3 and match.string[match.end() : match.end() + 5] != " of a")
    ):
        return f"{numerals.cardinal(above)} out of {numerals.cardinal(below)}"
    if left > right or (right > 20 and right not in (32, 64)):
        return (
            f"{numerals.cardinal(above)} {numerals.cardinal(below)}"
            if left > right
            else f"{numerals.cardinal(above)} over {numerals.cardinal(below)}"
        )
    return spoken_quantity(match[0])


def _years(match: re.Match[str]) -> str:
    last = match["last"]
    return f"{numerals.year(match['first'])} to {numerals.year(last) if len(last) == 4 else numerals.pair(last)}"


def _spaced(match: re.Match[str]) -> str:
    """With blanks around the hyphen, a rising pair is a range, else a difference."""
    left, right = (float(match[side].replace(",", "")) for side in ("left", "right"))
    is_question = re.search(
        r"(?:[Ww]hat(?:'s| is)|[Cc]alculate|[Cc]ompute|[-+=×*÷/] ?)[ ]?$",
        match.string[max(0, match.start() - 12) : match.start()],
    )
    after = re.match(r"[ ]*[-+=×*÷<>≤≥≠]", match.string[match.end() : match.end() + 4])
    word = "minus" if left > right or is_question or after else "to"
    return f"{numerals.amount(match['left'])} {word} {numerals.amount(match['right'])}"


RATIOS: tuple[Rule, ...] = (
    (
        re.compile(rf"(?<![\w.,/$£€-])(?P<year>{_YEARS})[/](?P<next>[0-9]{{2}})(?![\w/%-]|[.,][0-9])"),
        lambda match: f"{numerals.year(match['year'])} {numerals.pair(match['next'])}",
    ),
    (re.compile(rf"(?<![\w.,/$£€-])(?P<first>{_YEARS})-(?P<last>{_YEARS}|[0-9]{{2}})(?![\w/%-]|[.,][0-9])"), _years),
    (
        re.compile(
            rf"{ALONE}(?P<mixed>[0-9]{{1,4}}[ -][0-9]{{1,2}}[/⁄][0-9]{{1,3}}|(?:[0-9]{{1,4}} "
            rf"?)?[{FRACTION_SIGNS}])(?![\w/%]|[.,][0-9])"
        ),
        lambda match: spoken_quantity(match["mixed"]),
    ),
    (re.compile(rf"[{FRACTION_SIGNS}]"), lambda match: f" {spoken_quantity(match[0])} "),
    (re.compile(r"(?<![\w.,/$£€-])(?P<above>[0-9]{1,4})[/⁄](?P<below>[0-9]{1,4})(?![\w/%]|[.,-][0-9])"), _slash),
    (re.compile(rf"{ALONE}(?P<left>{NUMBER}) - (?P<right>{NUMBER})(?![\w/%]|[.,][0-9])"), _spaced),
    (
        re.compile(rf"{ALONE}(?P<left>{QUANTITY})-(?P<right>{QUANTITY})(?![\w/%-]|[.,][0-9])"),
        lambda match: f"{spoken_quantity(match['left'])} to {spoken_quantity(match['right'])}",
    ),
)
