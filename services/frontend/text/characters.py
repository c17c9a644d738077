"""Which characters are spoken, which are removed before a text is read, and which carry meaning, so
that leaving them out needs a warning. Every rule here is linear in the text.
"""

import re
import unicodedata
from collections.abc import Callable

_UNSPEAKABLE = re.compile(
    "\x1b\\[[0-9;?]{0,16}[A-Za-z]|["
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufeff"
    "\ufff0-\uffff\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
"""Terminal commands, control characters, direction marks, lone surrogates, private use. Joiners
stay: Persian and Hindi need them.
"""
_COMBINING_MARKS = (
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]"
)
_MARK_RUNS = re.compile(f"({_COMBINING_MARKS}{{6}}){_COMBINING_MARKS}+")
"""More marks on one letter than any language uses: normalising them takes quadratic time."""
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_EMOJI_CHARACTERS = "\u200d\u20e3\u231a\u231b\u23e9-\u23f3\u2600-\u27bf\u2b00-\u2bff\ufe0e\ufe0f\U0001f000-\U0001faff"
_EMOJI = re.compile(rf"(?!\u200d)[{_EMOJI_CHARACTERS}][{_EMOJI_CHARACTERS} ]*")
_WIDE = {0xFEE0 + ord(c): c for c in "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"}
_LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}
_FOLDED = str.maketrans({**_WIDE, **_LIGATURES})


def speakable(text: str) -> str:
    """`text` without control characters, direction marks, lone surrogates and private-use
    characters (icon fonts), on which the grammars fail for the whole text. Unusual line ends become
    `\\n`, full-width letters and digits and ligatures become ASCII, letters are composed (NFC).
    """
    if text.isascii() and text.isprintable():
        return text
    text = _UNSPEAKABLE.sub("", _LINE_ENDS.sub("\n", text)).translate(_FOLDED)
    return text if text.isascii() else unicodedata.normalize("NFC", _MARK_RUNS.sub(r"\1", text))


_EMOTICON = re.compile(r"(?:^|\s|(?<=[.!?,]))[:;]['’]?-?[)(DPpO](?=[\s.,!?]|$)")


def without_emoji(text: str) -> str:
    """`text` without emoji, emoticons and dingbats, which are not spoken. Words that only an emoji
    separated stay separated by a blank.
    """

    def gap(match: re.Match[str]) -> str:
        before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
        return " " if before.isalnum() and after and (after.isalnum() or match[0][-1] == " ") else ""

    return _EMOJI.sub(gap, _EMOTICON.sub("", text) if ":" in text or ";" in text else text)


_CATEGORIES = frozenset(("Sc", "Sm", "So"))
_SILENT = re.compile("[|~\u2500-\u25ff\u2800]")
"""Layout marks and characters that draw pages and tables."""


def has_meaning(character: str) -> bool:
    """Whether `character` is a letter, a digit, or a sign that is spoken."""
    category = unicodedata.category(character)
    return category[0] in "LN" or (category in _CATEGORIES and not _SILENT.match(character)) or character in "§¶†‡‰‱&@%"


def stretches(text: str, is_left_out: Callable[[int], bool]) -> list[str]:
    """The spans of `text` whose meaningful characters are all left out, without the characters
    around them. is_left_out: takes an index.
    """
    spans, start, end = list[str](), -1, -1
    for place, character in enumerate(text):
        if not has_meaning(character):
            continue
        if is_left_out(place):
            start, end = (place if start < 0 else start), place + 1
        elif start >= 0:
            spans.append(text[start:end])
            start = -1
    return [*spans, text[start:end]] if start >= 0 else spans


def scripts_of(texts: tuple[str, ...]) -> list[str]:
    """The scripts of the letters in `texts` as Unicode names them, at most four: "CJK",
    "CYRILLIC".
    """
    names = (
        unicodedata.name(character, "").split(" ")[0].split("-")[0]
        for text in texts
        for character in text
        if character.isalpha()
    )
    return list(dict.fromkeys(name for name in names if name))[:4]
