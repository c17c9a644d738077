"""Telephone numbers, read digit by digit with a pause between their groups."""

import re

from services.frontend.normalization.english import numerals
from services.frontend.text.rules import Rule

_CALLING = (
    r"\b(?:call|calls|called|calling|phone|tel|telephone|dial|dialed|dialing|fax|number|contact|text|texting|ring|"
    r"reach|line|hotline|lifeline|helpline|emergency|at|on)\b"
)
_WELL_KNOWN = "112|211|311|411|511|611|711|811|911|999|988|000"


def spoken_groups(written: str) -> str:
    """The digits of a telephone number, a comma between its groups."""
    groups = [group for group in re.split(r"[^0-9]+", written) if group]
    return ("plus " if written.startswith("+") else "") + ", ".join(numerals.digits(group) for group in groups)


_PRESSED = re.compile(
    r"\b(?:press|hit|dial|push|tap|type|enter|followed by)(?: the)? $|"
    r"\b(?:press|hit|dial|push|tap|type|enter|followed by)\b[^.!?\n]{0,48}(?:\b(?:or|and|then|by)(?: the)?|,) $",
    re.IGNORECASE,
)
_KEY_NAMED = re.compile(r"[ ](?:key|sign|button|symbol)\b")
_KEYS = {"#": "pound", "*": "star"}


def _key(match: re.Match[str]) -> str:
    """The name of a telephone key, where the text asks to press it or calls it a key."""
    text = match.string
    pressed = _PRESSED.search(text, max(0, match.start() - 64), match.start()) or (
        text[: match.start()].endswith("the ") and _KEY_NAMED.match(text, match.end())
    )
    return _KEYS[match["key"]] if pressed else match[0]


_NO_KEY = r"[\w#*]|[ ](?:[0-9]|of\b|marks?\b|means\b|is required\b)"
"""Behind a sign that is no key: `# of guests`, `* is required`."""
KEYS: tuple[Rule, ...] = ((re.compile(rf"(?<= )(?P<key>[#*])(?!{_NO_KEY})"), _key),)
RULES: tuple[Rule, ...] = (
    # Codes of a telephone.
    (re.compile(r"(?:^|(?<=[ (\"“]))\*(?=[0-9]{2,3}(?![\w*]|[.,][0-9]))(?<![0-9)] \*)"), "star "),
    (
        re.compile(
            r"(?<![0-9.,/-])\+(?:[0-9]{7,15}|[0-9]{1,3}[ -.]?(?:\([0-9]{1,4}\)[ -]?)?[0-9]{2,4}"
            r"(?:[ .-][0-9]{2,4}){1,5})(?![0-9])"
        ),
        lambda match: spoken_groups(match[0]),
    ),
    (
        re.compile(r"(?<![0-9.,/$-])(?:1[ .-])?(?:\([0-9]{3}\)[ ]?|[0-9]{3}[ .-])[0-9]{3}[ .-][0-9]{4}(?![0-9])"),
        lambda match: spoken_groups(match[0]),
    ),
    (
        re.compile(
            rf"(?P<lead>{_CALLING}[^\d\n.!?]{{0,20}})(?P<phone>[0-9]{{3}}[-.][0-9]{{4}})(?![0-9-])", re.IGNORECASE
        ),
        lambda match: match["lead"] + spoken_groups(match["phone"]),
    ),
    (
        re.compile(
            rf"(?P<lead>{_CALLING}[^\d\n.!?]{{0,12}}[ ])(?P<phone>[0-9]{{10,11}})(?![0-9-]|[.,][0-9])", re.IGNORECASE
        ),
        lambda match: match["lead"] + numerals.digits(match["phone"]),
    ),
    (
        re.compile(
            r"(?P<lead>\b(?:call|calls|called|calling|dial|dialed|dialing|text|ring|line|hotline|lifeline|emergency|"
            rf"number)\b[^\d\n.!?]{{0,16}}[ ])"
            rf"(?P<phones>(?:{_WELL_KNOWN})(?:(?:, (?:and |or )?| and | or )(?:{_WELL_KNOWN})){{0,4}})"
            r"(?![\w%/-]|[.,][0-9])",
            re.IGNORECASE,
        ),
        lambda match: match["lead"] + re.sub("[0-9]+", lambda phone: numerals.digits(phone[0]), match["phones"]),
    ),
    # 555 is an exchange without subscribers: such numbers stand only for telephone numbers.
    (re.compile(r"(?<![\w.,/$£€-])555-[0-9]{4}(?![\w-])"), lambda match: spoken_groups(match[0])),
    (
        re.compile(r"(?<![\w.,/-])0[0-9]{2,4}[ -][0-9]{3,4}[ -][0-9]{3,4}(?![\w-])"),
        lambda match: spoken_groups(match[0]),
    ),
    (
        re.compile(
            r"(?<![\w.,$£€/#-])(?<!Porsche )911(?![\w%/-]|[.,][0-9]|[ ]"
            r"(?:people|miles|kilometers|votes|pages|students)\b)"
        ),
        "nine one one",
    ),
    (
        re.compile(r"(?:,?[ ]|\b)(?P<ext>[Ee]xt(?:ension)?\b\.?)[ ]?(?P<number>[0-9]{1,6})(?![0-9]|[.,][0-9])"),
        lambda match: (
            f"{', ' if match[0][0] == ',' else ' ' if match[0][0] == ' ' else ''}extension "
            f"{numerals.digits(match['number'])}"
        ),
    ),
)
