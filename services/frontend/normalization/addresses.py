"""URLs and mail addresses as they are spoken: `example dot com slash news`, `anna at example dot
com`.

The host and the path of a URL are spoken; the scheme, a name and password, `www.`, anything after
`?` or `#`, and a path that makes it longer than 60 characters are not. Linear in the length of the
text.
"""

import re

from services.frontend.text.chinese_numbers import digits
from services.frontend.text.language import CHINESE

_LONGEST = 60
_HOST_ENDS = "com|org|net|edu|gov|io|ai|dev|app|info|cn|de|fr|uk|jp|eu|tv"
_IN_PATH = r"""[^\s<>"'`|\\^{}()\[\]，。！？；：、（）《》\u3400-\u9fff]"""
_URL = re.compile(
    rf"""
      (?<![A-Za-z0-9]) (?:(?:https?|ftp)://|www\.) [A-Za-z0-9\[\]:.%_~-]{{1,200}} (?:/{_IN_PATH}{{0,2000}})?
      (?:[?\#]{_IN_PATH}{{0,2000}})?
    | (?<![A-Za-z0-9@._-]) (?:[A-Za-z0-9-]{{1,63}}\.){{1,4}}(?:{_HOST_ENDS})(?![A-Za-z0-9_@-]|\.[A-Za-z0-9])
      (?:/[A-Za-z0-9/._~%+-]{{0,2000}})? (?:[?\#][A-Za-z0-9/._~%&=+-]{{1,2000}})?
    """,
    re.VERBOSE,
)
_MAIL = re.compile(
    r"(?<![A-Za-z0-9_.+-])[A-Za-z0-9_.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,4}[A-Za-z]{2,24}(?![A-Za-z0-9])"
)
_USER = re.compile(r"(?<=://)[A-Za-z0-9._~!$&'*+=:%@-]{1,128}@(?=[\w\[])")
_SCHEME = re.compile(r"(?:(?:https?|ftp)://)?(?:www\.)?", re.IGNORECASE)
_SAYS_WWW = re.compile(r"www\.", re.IGNORECASE)
"""Spoken in English where no scheme precedes it."""
_ENGLISH = {
    ".": " dot ",
    "/": " slash ",
    "-": " dash ",
    "_": " underscore ",
    "@": " at ",
    "~": " tilde ",
    ":": " colon ",
    "+": " plus ",
}
_CHINESE = {".": "点", "/": "斜杠", "-": "杠", "_": "下划线", "@": "艾特", "~": "波浪线", ":": "冒号", "+": "加"}
_SIGN = re.compile(r"[^A-Za-z0-9\u0080-\U0010ffff]")


def spoken_addresses(text: str, language: str) -> str:
    """`text` with its addresses in words of `language` ("zh", else English words)."""
    if "." not in text and "://" not in text:
        return text
    if "@" in text:
        text = _USER.sub("", text)
        text = _MAIL.sub(lambda match: _spoken(match[0], language), text)
    return _URL.sub(lambda match: _url(match[0], language), text)


def _url(address: str, language: str) -> str:
    bare = address.rstrip(".,;:!?/…")
    after = address[len(bare) :].lstrip("/")
    www = language != CHINESE and _SAYS_WWW.match(bare) is not None
    place = re.split(r"[?#]", _SCHEME.sub("", bare, count=1), maxsplit=1)[0].rstrip("/")
    if len(place) > _LONGEST:
        place = place.split("/", 1)[0][: 4 * _LONGEST]
    return ("www dot " if www and place else "") + (_spoken(place, language) if place else bare) + after


def _spoken(address: str, language: str) -> str:
    signs = _CHINESE if language == CHINESE else _ENGLISH
    if language == CHINESE:
        address = digits(address)
    return " ".join(_SIGN.sub(lambda match: signs.get(match[0], " "), address).split())
