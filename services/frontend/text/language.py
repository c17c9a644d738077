"""The language in which a text is read: the caller's BCP-47 tag, or the script of the text."""

import re

from cosyserve.errors import InvalidRequest

CHINESE = "zh"
ENGLISH = "en"
_PRIMARY = {"zh": CHINESE, "cmn": CHINESE, "en": ENGLISH}
_HAN = re.compile(r"[\u4e00-\u9fff]")
_TAG = re.compile(
    r"""
    (?: (?: [a-z]{2,3} (?:-[a-z]{3}){0,3} | [a-z]{4,8} )       # language and extended languages
        (?: -[a-z]{4} )?                                        # script
        (?: -(?:[a-z]{2}|[0-9]{3}) )?                           # region
        (?: -(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}) )*              # variants
        (?: -[0-9a-wy-z](?:-[a-z0-9]{2,8})+ )*                  # extensions
        (?: -x(?:-[a-z0-9]{1,8})+ )?                            # private use
      | x(?:-[a-z0-9]{1,8})+
    )""",
    re.IGNORECASE | re.VERBOSE,
)
LONGEST_TAG = 64
_TRACED = re.compile("[a-z]{2}|und|")


def is_chinese(text: str) -> bool:
    """Whether a character lies in U+4E00..U+9FFF."""
    return _HAN.search(text) is not None


def language_of(code: str, text: str) -> str:
    """ "zh", "en", or the tag itself for a language without a normaliser.

    code: BCP-47 tag (RFC 5646 syntax) or empty, which decides by script: Chinese as soon as one
    character lies in U+4E00..U+9FFF, else English (compatibility specification section 2.1). Raises
    InvalidRequest when `code` is not a tag.
    """
    if not code:
        return CHINESE if _HAN.search(text) else ENGLISH
    require_tag(code)
    return _PRIMARY.get(code.split("-")[0].lower(), code)


def traced_language(code: str) -> str:
    """The language code for a trace: the two letters of its language, "und", "other" for anything
    longer, as callers choose the code; empty for none.
    """
    language = code.split("-")[0].lower()
    return language if _TRACED.fullmatch(language) else "other"


def require_tag(code: str, name: str = "language_code") -> None:
    """Raise InvalidRequest naming the field unless `code` is empty or has the form of a BCP-47
    tag.
    """
    if code and (len(code) > LONGEST_TAG or not _TAG.fullmatch(code)):
        raise InvalidRequest(
            f'{name} is {code[:LONGEST_TAG]!r}; expected a BCP-47 tag such as "en-US" or "zh", or nothing'
        )
