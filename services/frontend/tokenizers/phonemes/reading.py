"""The spoken words of a text and the marks between them, in one pass over the text; and the
meaningful text that has no reading.

Sound tags (`[laughter]`, `<strong>`) are silent: they have no phoneme. Everything without an
English reading (other scripts, emoji) is silent too.
"""

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from services.frontend.text import english_numbers as numbers
from services.frontend.text.characters import has_meaning, stretches
from services.frontend.tokenizers.placeholders import BEGIN, BLANK, END, MARKUP

GIVEN = BEGIN


class Word(NamedTuple):
    """One word and the mark after it."""

    text: str
    """ASCII letters and apostrophes in their original case; with a full stop inside (`U.S`) it is
    spelled. After `GIVEN`: phonemes from a dictionary.
    """
    mark: str = ""
    """One of `MARKS`, or empty."""


MARKS = "?!….;:—,"
"""Strongest first: of several consecutive marks the strongest wins."""
_ENDS = frozenset(".!?…")
_RANK = {mark: rank for rank, mark in enumerate(MARKS)}
_SIGNS = {
    "&": "and",
    "@": "at",
    "%": "percent",
    "+": "plus",
    "/": "slash",
    "=": "equals",
    "#": "number",
    "°": "degrees",
    "-": "minus",
    ".": "dot",
}
_CURRENCIES = {"$": ("dollar", "cent"), "£": ("pound", "pence"), "€": ("euro", "cent")}
_TITLES = {
    "mr": "mister", "mrs": "missus", "ms": "miz", "dr": "doctor", "prof": "professor", "st": "saint", "mt": "mount",
    "capt": "captain", "lt": "lieutenant", "gen": "general", "sen": "senator", "rev": "reverend", "sgt": "sergeant",
    "gov": "governor",
}  # fmt: skip
"""With a full stop before a name."""
_SHORTENED = {
    "dr": "drive", "st": "street", "ave": "avenue", "blvd": "boulevard", "rd": "road", "vs": "versus", "etc": "etc",
    "jr": "junior", "sr": "senior", "inc": "incorporated", "ltd": "limited", "corp": "corporation",
    "dept": "department", "approx": "approximately", "mr": "mister", "mrs": "missus", "ms": "miz", "prof": "professor",
    "jan": "january", "feb": "february", "aug": "august", "sept": "september", "oct": "october", "nov": "november",
    "dec": "december",
}  # fmt: skip
"""With a full stop elsewhere."""
_GOES_ON = (",", ";", ":")
_LATIN = {"e.g": ("for", "example"), "i.e": ("that", "is")}
_FOLDED = str.maketrans(
    {
        "’": "'", "‘": "'", "ʼ": "'", "`": "'", "´": "'", "–": "—", "―": "—", "−": "-", "…": "…", "。": ".",
        "、": ",", "，": ",", "！": "!", "？": "?", "；": ";", "：": ":", "¿": None, "¡": None, "؟": "?", "؛": ";",
        "،": ",", "।": ".", "۔": ".", "«": '"', "»": '"', "“": '"', "”": '"', "„": '"', "ß": "ss", "æ": "ae",
        "Æ": "Ae", "ø": "o", "Ø": "O", "œ": "oe", "Œ": "Oe", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "th",
        "Ð": "Th", "þ": "th", "Þ": "Th", "ı": "i", "º": "°", "⁄": "/",
    }
)  # fmt: skip
_PRESERVED = "—…£€°"
_UNREADABLE = re.compile(
    "[ \n.,!?;:…—\u3001-\u3003\u3008-\u3011\u3041-\u3096\u30a1-\u30ff\u3400-\u9fff\uac00-\ud7a3，！？；：]*"
)
"""Only marks and scripts without an English reading: a fast path, since whole texts may be so."""
_INVISIBLE = ("Cf", "Mn", "Me")
_MARKUP = re.compile("|".join(re.escape(mark) for mark in MARKUP))
_GIVEN = re.compile(f"({BEGIN}[^{BEGIN}{END}]{{1,200}}{END})")
_PARTS = re.compile(
    r"""
      (?P<given> \uf8f0 [^\uf8f0\uf8f2]{1,200} \uf8f2 ) |
      (?P<initials> (?<![A-Za-z'.]) (?:[A-Za-z]\.){2,} )
    | (?P<shortened> (?<![A-Za-z']) [A-Za-z]{2,6} \. (?=[\s,;:!?)"]|$) )
    | (?P<word> '? [A-Za-z]+ (?:'[A-Za-z]+)* '? )
    | (?P<money> [$£€] [ ]? (?P<units>\d{1,3}(?:,\d{3}){1,4}+(?![,]?\d)|\d++) (?:\.(?P<cents>\d\d)(?!\d))? )
    | (?P<clock> (?<![\d.,:]) \d{1,2} : [0-5]\d (?![\d:]) )
    | (?P<ordinal> \d++ (?:st|nd|rd|th) (?![A-Za-z]) )
    | (?P<year> (?<![\d.,]) (?:1[1-9]|20)\d\d (?![\d%°] | [.,]\d) )
    | (?P<number> (?P<whole>\d{1,3}(?:,\d{3}){1,4}+(?!\d)|\d++) (?:\.(?P<decimals>\d++))? )
    | (?P<ellipsis> \.\.\.++ )
    | (?P<dot> (?<=[A-Za-z\d]) \. (?=[a-z\d]) )
    | (?P<dash> — | --++ | (?<=\s) - (?=\s) )
    | (?P<mark> [?!….;:,] )
    | (?P<bracket> (?<=\s) [(\[{] | [)\]}] )
    | (?P<sign> [&@%+/=°] | \#(?=\d) | (?<![\w)])-(?=\d) )
    """,
    re.VERBOSE | re.ASCII,
)


_MARK_KINDS = {"ellipsis": "…", "dash": "—", "mark": "", "bracket": ","}


def read_words(text: str) -> list[Word]:
    """The words of `text` in order. Pure, never raises; linear in the length of the text."""
    words: list[Word] = []
    if _UNREADABLE.fullmatch(text):
        return words
    text = (
        "".join(part if part[:1] == GIVEN else _fold(part) for part in _GIVEN.split(text))
        if GIVEN in text
        else _fold(text)
    )
    for match in _PARTS.finditer(text):
        kind = match.lastgroup or ""
        if kind == "given":
            words += [Word(GIVEN + sound) for sound in match[0][1:-1].split(BLANK)]
        elif kind == "word":
            words.append(Word(match[0]))
        elif kind in _MARK_KINDS:
            _add_mark(words, _MARK_KINDS[kind] or match[0])
        elif kind == "shortened":
            _add_shortened(words, match[0][:-1], text[match.end() : match.end() + 3].lstrip()[:1])
        elif kind == "initials":
            words += [Word(word) for word in _LATIN.get(match[0][:-1].lower(), (match[0][:-1],))]
        elif kind in ("sign", "dot"):
            words.append(Word(_SIGNS[match[0]]))
        else:
            words += [Word(word) for word in _number(kind, match)]
    return words


def end_sentence(words: list[Word]) -> list[Word]:
    """`words` with the last one ending a sentence: a full stop replaces a weaker mark or none."""
    if not words or words[-1].mark in _ENDS:
        return words
    return [*words[:-1], Word(words[-1].text, ".")]


def _fold(text: str) -> str:
    """ASCII and the few other characters that are read: accents removed, full-width forms and
    foreign digits as ASCII.
    """
    if "[" in text or "<" in text:
        text = _MARKUP.sub(" ", text)
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKD", text.translate(_FOLDED)).translate(_FOLDED)
    return "".join(
        [character if character.isascii() or character in _PRESERVED else _folded(character) for character in text]
    )


def _folded(character: str) -> str:
    """Digits of any script become ASCII digits, accents and invisible characters are removed, and
    unreadable characters separate words.
    """
    if unicodedata.category(character) in _INVISIBLE:
        return ""
    value = unicodedata.digit(character, None)
    return " " if value is None else str(value)


def _add_mark(words: list[Word], mark: str) -> None:
    """A mark before the first word is dropped; of several consecutive marks the strongest wins."""
    if words:
        text, before = words[-1]
        if not before or _RANK[mark] < _RANK[before]:
            words[-1] = Word(text, mark)


def _add_shortened(words: list[Word], name: str, following: str) -> None:
    """Add a short word with a full stop, which ends the sentence unless the word is an
    abbreviation. following: the next character.
    """
    key = name.lower()
    follows_name = key in ("st", "dr") and words and words[-1].text[0].isupper() and not words[-1].mark
    if key in _TITLES and following.isupper() and not follows_name:
        words.append(Word(_TITLES[key]))
    elif key in _SHORTENED:
        ends = not following or following.isupper()
        words += [Word(word) for word in _SHORTENED[key].split(" ")]
        if ends:
            _add_mark(words, ".")
    elif key == "no" and following.isdigit():
        words.append(Word("number"))
    else:
        # A comma shows that the sentence continues: PM., wasn't it?
        words.append(Word(name, "" if following in _GOES_ON else "."))


def _number(kind: str, match: re.Match[str]) -> list[str]:
    if kind == "money":
        return numbers.amount(match["units"].replace(",", ""), match["cents"] or "", *_CURRENCIES[match[0][0]])
    if kind == "clock":
        return numbers.clock(*match[0].replace(" ", "").split(":"))
    if kind == "ordinal":
        return numbers.ordinal(match[0][:-2])
    if kind == "year":
        return numbers.year(match[0])
    words = numbers.whole(match["whole"].replace(",", ""))
    return words if match["decimals"] is None else [*words, "point", *numbers.digit_by_digit(match["decimals"])]


_DIGIT = re.compile(r" ?\d")
_NEVER, _BEFORE_DIGIT, _ALWAYS = range(3)


def unread(text: str) -> list[str]:
    """Those spans, as they are written; linear in the length of the text."""
    odd = {character: read for character in set(text) if (read := _read(character)) != _ALWAYS}
    if not odd:
        return []

    def is_unread(place: int) -> bool:
        read = odd.get(text[place], _ALWAYS)
        return read == _NEVER or (read == _BEFORE_DIGIT and not _DIGIT.match(text, place + 1))

    return stretches(text, is_unread)


@lru_cache(maxsize=8192)
def _read(character: str) -> int:
    """When `character` is read. A character without meaning counts as read: leaving it out needs no
    warning.
    """
    if not has_meaning(character) or read_words(character):
        return _ALWAYS
    return _BEFORE_DIGIT if read_words(character + "1") != read_words("1") else _NEVER
