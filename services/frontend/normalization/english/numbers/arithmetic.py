"""Signs of arithmetic and comparison between two operands, and signs before a number."""

import re

from services.frontend.normalization.english.numerals import NUMBER, amount, plural, short
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
    if match["several"]:
        return f"{amount(left)} by {plural(amount(right))}"
    third = f" by {amount(match['third'])}" if match["third"] else ""
    if by and len(left) >= 3 and (left + right).isdigit():
        return f"{short(left)} by {short(right)}"
    return f"{amount(left)} {'by' if by or third else 'times'} {amount(right)}{third}"


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
    (re.compile(r"(?<= [A-F])-(?=[.,;!?]|$| (?:in|on|for|and|or|grade)\b)"), " minus"),
    (re.compile(r"(?<=[0-9])\+(?=[ .,;:!?)]|$)"), " plus"),
    (_NAME, "A"),
)
