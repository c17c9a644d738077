"""Written text to spoken text, in the order of compatibility specification section 2.1.

`Normalizer` combines an optional text normalisation package (numbers, dates, amounts, units: see
`wetext_package`) with the character rules. Without a package Chinese keeps its digits, which the
model reads itself, and English digits are spelled by the rule below.

Where the specification's order has a fault (section 8, item 11, and the digit rule), the served
form corrects it; `reference=True` keeps the fault wherever it gives a result, so that outputs can
be compared with recorded ones. Neither raises on any text.

A grammar sees only the spans that it must: written forms (numbers, signs, abbreviations) and a few
words around them. It leaves plain words unchanged and takes 50 to 100 microseconds per character
for it, so the other text bypasses it.
"""

import re
import unicodedata
from collections.abc import Iterator
from itertools import groupby
from typing import Protocol

from services.frontend.normalization import chinese_readings
from services.frontend.normalization import english_readings as readings_of_english
from services.frontend.text.english_numbers import grouped
from services.frontend.text.language import CHINESE, ENGLISH
from services.frontend.text.text_scheduler import yield_turn
from services.frontend.tokenizers.placeholders import PLACEHOLDERS

_MOST_DIGITS = 36
_LONG_NUMBER = re.compile(rf"([0-9]{{{_MOST_DIGITS + 1},}})")
_CHINESE_DIGITS = tuple("零一二三四五六七八九")
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_POWERS = {"²": " squared", "³": " cubed"}
_CHINESE_DELETED = str.maketrans("", "", "（）【】`")
_SILENT_BLANK = re.compile(r"(?<![\x00-\x1f!-\x7f]) | (?![\x00-\x1f!-\x7f])")
_TRAILING_COMMAS = re.compile(r"[，,、]+$")


class Package(Protocol):
    """A text normalisation package."""

    def spoken(self, text: str, language: str) -> str:
        """`text` with numbers, dates and similar forms as words of `language`, "zh" or "en"."""


class Normalizer:
    """Normalises runs of text; holds no request state."""

    def __init__(self, package: Package | None, *, reference: bool = False) -> None:
        self._package = package
        self.reference = reference

    def normalise(
        self, text: str, language: str, *, before: str = "", last: bool = True, own_readings: bool = True
    ) -> str:
        """The spoken form of `text`; languages other than "zh" and "en" are returned unchanged.

        before: the character before this run in the whole text (empty at its start); last: whether
        the run ends the text. own_readings: False leaves all numbers, units and signs to the
        package, as the reference does.
        """
        if language not in (CHINESE, ENGLISH):
            return text
        if not self.reference:
            text = "".join(self._rewrite(part, language, own_readings) for part in PLACEHOLDERS.split(text))
        else:
            text = self._apply_package(text, language)
        if language == ENGLISH:
            return spell_digits(text, reference=self.reference)
        text = drop_blanks(text.replace("\n", ""), before)
        text = text.replace("²", "平方").replace("³", "立方").replace(".", "。").replace(" - ", "，")
        text = text.translate(_CHINESE_DELETED).replace("——", " ")
        return _TRAILING_COMMAS.sub("。", text) if last else text

    def _rewrite(self, text: str, language: str, own_readings: bool) -> str:
        """Apply our reading rules and then the package; placeholders pass neither."""
        if not text or PLACEHOLDERS.fullmatch(text):
            return text
        if own_readings:
            text = (chinese_readings if language == CHINESE else readings_of_english).rewrite(text)
            yield_turn()
        # The English grammar joins lines around a number, so it receives them one by one.
        return "\n".join(self._apply_package(line, language) for line in text.split("\n"))

    def _apply_package(self, text: str, language: str) -> str:
        """The served form passes no number of more than 36 digits to the package, which returns it
        unchanged in quadratic time.
        """
        if self.reference:
            return self._apply_without_margins(text, language)
        return "".join(
            _digit_by_digit(part, language) if _LONG_NUMBER.fullmatch(part) else self._spoken(part, language)
            for part in _LONG_NUMBER.split(text)
        )

    def _spoken(self, text: str, language: str) -> str:
        """The package's form of the written forms in `text`."""
        if self._package is None or not text.strip():
            return text
        return "".join(
            self._apply_without_margins(piece, language) if is_written_form else piece
            for is_written_form, piece in split_for_grammar(text, language)
        )

    def _apply_without_margins(self, text: str, language: str) -> str:
        """The package's form of `text`. Surrounding blanks, which separate runs, bypass the
        package.
        """
        core = text.strip()
        # Long runs of marks take the grammars longest and have no reading.
        if self._package is None or not core or not (self.reference or any(character.isalnum() for character in core)):
            return text
        yield_turn()
        start = text.index(core)
        return text[:start] + self._package.spoken(core, language) + text[start + len(core) :]


_WORD = re.compile(r"\S+\s*|\s+")
_WRITTEN = re.compile(
    r"""[\d$€£¥￥%&@+=\#°²³¹¼-¾^*/\\~<>|_\u2100-\u218f\u3300-\u33ff] | [A-Za-z]\.[A-Za-z]
      """,
    re.VERBOSE,
)
_AROUND = 3
"""Words on each side of a written form that may decide its reading."""
_BEFORE, _BEHIND = 3, 5
"""Characters around the digits of a Chinese clause that may decide their reading."""
_MOST_GRAMMAR_CHARACTERS = 64
"""Characters passed to a grammar at once: 200 cost three times as much per character and hold the
GIL for 60 ms.
"""
_CLAUSE = re.compile(r"[^，。！？；、\n]*[，。！？；、\n]*")
_JOINS = ".,:/-"
"""Signs inside a number, a time, a date."""
_NUMERAL = re.compile(r"\d")


def split_for_grammar(text: str, language: str) -> Iterator[tuple[bool, str]]:
    """Split `text` into pieces, each with whether the grammar must see it; joined they are the
    text.
    """
    if language == CHINESE:
        # The Chinese grammar does nothing without a digit.
        pieces = [piece for clause in _CLAUSE.findall(text) if clause for piece in _around_digits(clause)]
    else:
        pieces = _around_written_forms(text)
    for is_written_form, group in groupby(pieces, key=lambda piece: piece[0]):
        window = "".join(piece for _, piece in group)
        yield from ((is_written_form, part) for part in (_bounded(window) if is_written_form else (window,)))


def _bounded(window: str) -> Iterator[str]:
    """`window` in parts of at most 64 characters: cut after a blank between two words without a
    written form, else after any blank, else before a digit that follows a sign which does not join
    numbers, else between two letters that are not Latin, else anywhere.
    """
    while len(window) > _MOST_GRAMMAR_CHARACTERS:
        head = window[: _MOST_GRAMMAR_CHARACTERS + 1]
        words = list(_WORD.finditer(head))
        # The last word of the head may continue after it.
        blanks = [(words[at].end(), words[at][0] + words[at + 1][0]) for at in range(len(words) - 1)]
        plain = max((place for place, around in blanks if not _WRITTEN.search(around)), default=0)
        blank = max((place for place, _ in blanks), default=0)
        places = range(1, _MOST_GRAMMAR_CHARACTERS + 1)
        edge = max(
            (at for at in places if head[at].isdigit() and not head[at - 1].isalnum() and head[at - 1] not in _JOINS),
            default=0,
        )
        between = max((at for at in places if not head[at].isascii() and not head[at - 1].isascii()), default=0)
        cut = plain if plain > _MOST_GRAMMAR_CHARACTERS // 4 else blank or edge or between or _MOST_GRAMMAR_CHARACTERS
        yield window[:cut]
        window = window[cut:]
    yield window


def _around_digits(clause: str) -> list[tuple[bool, str]]:
    places = [match.start() for match in _NUMERAL.finditer(clause)]
    if not places:
        return [(False, clause)]
    start, end = max(0, places[0] - _BEFORE), min(len(clause), places[-1] + 1 + _BEHIND)
    # Never within a Latin word, such as a unit.
    while start and clause[start - 1].isascii():
        start -= 1
    while end < len(clause) and clause[end].isascii():
        end += 1
    return [
        (is_written_form, piece)
        for is_written_form, piece in ((False, clause[:start]), (True, clause[start:end]), (False, clause[end:]))
        if piece
    ]


def _around_written_forms(text: str) -> list[tuple[bool, str]]:
    if not _WRITTEN.search(text):
        return [(False, text)]
    words = _WORD.findall(text)
    is_written_form = [False] * len(words)
    for place, word in enumerate(words):
        if _WRITTEN.search(word.rstrip()):
            first, last = max(0, place - _AROUND), min(len(words), place + _AROUND + 1)
            is_written_form[first:last] = [True] * (last - first)
    return list(zip(is_written_form, words, strict=True))


def drop_blanks(text: str, before: str = "") -> str:
    """Chinese blank rule: an ASCII space stays only between two ASCII characters that are not
    spaces. before: the character before `text`.
    """
    before = before if before.isascii() and before != " " else ""
    return _SILENT_BLANK.sub("", before + text)[len(before) :]


def spell_digits(text: str, *, reference: bool = False) -> str:
    """English digit rule: each maximal run of digit characters becomes words.

    Corrected unless `reference`: leading zeros are read, a run of more than 36 digits is read digit
    by digit (also in reference mode, where the rule as specified raises), superscripts are powers
    and other digit forms have their value (specified: "zero").
    """
    spell = _spell_as_specified if reference else _spell
    return "".join(spell("".join(run)) if is_digit else "".join(run) for is_digit, run in groupby(text, str.isdigit))


def _spell_as_specified(run: str) -> str:
    if len(run) > _MOST_DIGITS:
        return _digit_by_digit(run)
    return grouped("".join(filter(str.isdecimal, run)) or "0")


def _spell(run: str) -> str:
    powers = "".join(_POWERS[character] for character in run if character in _POWERS)
    digits = "".join(str(unicodedata.digit(character)) for character in run if character not in _POWERS)
    if len(digits) > _MOST_DIGITS:
        return _digit_by_digit(digits) + powers
    zeros = len(digits) - len(digits.lstrip("0"))
    words = [_DIGITS[0]] * zeros
    if digits[zeros:]:
        words.append(grouped(digits[zeros:]))
    return " ".join(words) + powers


def _digit_by_digit(run: str, language: str = ENGLISH) -> str:
    blank, names = ("", _CHINESE_DIGITS) if language == CHINESE else (" ", _DIGITS)
    return blank.join(names[unicodedata.digit(character)] for character in run)
