"""Which written forms of several words may have begun at the end of an unfinished text.

The words that decide the reading of a number may precede it by several words (`account number is
48210937`) or follow it (`a 20 A fuse`): such words must be read together.
"""

import re

from services.frontend.normalization.english.roman import PARTS, RULERS

REACH = 80
"""Characters at the end of the text that are examined."""
_NAMED = frozenset(
    [
        "account",
        "accounts",
        "acct",
        "pin",
        "passcode",
        "password",
        "otp",
        "isbn",
        "issn",
        "ssn",
        "iban",
        "serial",
        "card",
        "zip",
        "postal",
        "postcode",
        "code",
        "tracking",
        "confirmation",
        "passport",
        "routing",
        "booking",
        "reservation",
        "membership",
        "member",
        "employee",
        "customer",
        "license",
        "plate",
        "locker",
        "combination",
        "extension",
        "badge",
        "invoice",
        "policy",
        "reference",
        "id",
        "ticket",
        "flight",
        "flights",
        "number",
        "fax",
        "line",
        "hotline",
        "lifeline",
        "helpline",
        "pressure",
        "bp",
        "odds",
        "ratio",
        "scale",
    ]
)
"""Words that decide the reading of a number up to three words after them."""
_WORDS = 4
_COUNTED = 2
"""Words after a number that decide its reading."""
_BEFORE_ROMAN = frozenset(
    f"{PARTS}|{RULERS}|type|phase|stage|chapter|part|act|scene|book|volume|class|level|section".split("|")
)
_ROMAN = re.compile(r"[IVXLCDM]{2,8}|[ivx]{2,5}")
_FIGURE = re.compile(r"[0-9½-¾⅐-⅞]")


def has_begun(text: str) -> bool:
    """Whether a form may continue after `text`, which ends between two words."""
    words = text[-REACH:].split()[-_WORDS:]
    if not words:
        return False
    return (
        words[-1] in _BEFORE_ROMAN
        or any(word.rstrip(":,#").lower() in _NAMED for word in words)
        or any(_FIGURE.search(word) is not None for word in words[-_COUNTED:])
    )


def is_roman_numeral(word: str) -> bool:
    """Whether `word`, letters only, may be a Roman numeral, which is read with its neighbours."""
    return _ROMAN.fullmatch(word.rstrip(",")) is not None
