"""Which written forms of several words may have begun at the end of a text that is still being
written.

What decides how a number is read may stand words in front of it (`account number is 48210937`) or
behind it (`a 20 A fuse`): such words are not read apart.
"""

import re

from services.frontend.normalization.english.roman import PARTS, RULERS

REACH = 80
"""Characters of the text's end that are looked at."""
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
"""Up to three words in front of a number they decide how it is read."""
_WORDS = 4
_COUNTED = 2
"""Words behind a number that decide how it is read."""
_BEFORE_ROMAN = frozenset(
    f"{PARTS}|{RULERS}|type|phase|stage|chapter|part|act|scene|book|volume|class|level|section".split("|")
)
_ROMAN = re.compile(r"[IVXLCDM]{2,8}|[ivx]{2,5}")
_FIGURE = re.compile(r"[0-9½-¾⅐-⅞]")


def has_begun(text: str) -> bool:
    """Whether a form may go on behind `text`, which ends between two words."""
    words = text[-REACH:].split()[-_WORDS:]
    if not words:
        return False
    return (
        words[-1] in _BEFORE_ROMAN
        or any(word.rstrip(":,#").lower() in _NAMED for word in words)
        or any(_FIGURE.search(word) is not None for word in words[-_COUNTED:])
    )


def decides(word: str) -> bool:
    """Whether `word`, letters alone, belongs to its neighbours: a Roman numeral."""
    return _ROMAN.fullmatch(word.rstrip(",")) is not None
