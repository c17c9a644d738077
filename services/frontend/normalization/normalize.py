"""Written text to spoken text, in the order of compatibility specification section 2.1.

`Normalizer` combines an optional text normalisation package (numbers, dates, amounts, units: see
`wetext_package`) with the character rules. Without a package Chinese keeps its digits, which the
model reads itself, and English digits are spelled by the rule below.

Where the specification's order has a fault (section 8, item 11, and the digit rule), the served
form corrects it; `reference=True` keeps the fault wherever it gives a result, so that outputs can
be compared with recorded ones. Neither raises on any text.
"""

import re
import threading
import unicodedata
from itertools import groupby
from typing import Protocol

import inflect

from services.frontend.normalization import chinese_readings
from services.frontend.normalization import english_readings as readings_of_english
from services.frontend.normalization.grammar_spans import split_for_grammar
from services.frontend.text.language import CHINESE, ENGLISH
from services.frontend.text.text_scheduler import yield_turn
from services.frontend.tokenizers.placeholders import PLACEHOLDERS

_inflect, _inflect_lock = inflect.engine(), threading.Lock()
"""The engine keeps state between the steps of a number, so threads use it one at a time."""
_MOST_DIGITS = 36
_LONG_NUMBER = re.compile(rf"[0-9]{{{_MOST_DIGITS + 1},}}")
_CHINESE_DIGITS = "零一二三四五六七八九"
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
            readings = chinese_readings if language == CHINESE else readings_of_english
            text = readings.rewrite(text)
            yield_turn()
        # The English grammar joins lines around a number, so it receives them one by one.
        return "\n".join(self._apply_package(line, language) for line in text.split("\n"))

    def _apply_package(self, text: str, language: str) -> str:
        """The served form passes no number of more than 36 digits to the package, which returns it
        unchanged in quadratic time.
        """
        if self.reference:
            return self._apply_without_margins(text, language)
        spoken, start = [], 0
        for number in _LONG_NUMBER.finditer(text):
            spoken += [self._spoken(text[start : number.start()], language), _digit_by_digit(number[0], language)]
            start = number.end()
        return "".join([*spoken, self._spoken(text[start:], language)])

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
    runs = ((is_digit, "".join(run)) for is_digit, run in groupby(text, str.isdigit))
    return "".join(spell(run) if is_digit else run for is_digit, run in runs)


def _spell_as_specified(run: str) -> str:
    return _in_words(run) if len(run) <= _MOST_DIGITS else _digit_by_digit(run)


def _in_words(digits: str) -> str:
    with _inflect_lock:
        return str(_inflect.number_to_words(digits))


def _spell(run: str) -> str:
    powers = "".join(_POWERS[character] for character in run if character in _POWERS)
    digits = "".join(str(unicodedata.digit(character)) for character in run if character not in _POWERS)
    if len(digits) > _MOST_DIGITS:
        return _digit_by_digit(digits) + powers
    zeros = len(digits) - len(digits.lstrip("0"))
    words = [_DIGITS[0]] * zeros
    if digits[zeros:]:
        words.append(_in_words(digits[zeros:]))
    return " ".join(words) + powers


def _digit_by_digit(run: str, language: str = ENGLISH) -> str:
    values = [unicodedata.digit(character) for character in run]
    if language == CHINESE:
        return "".join(_CHINESE_DIGITS[value] for value in values)
    return " ".join(_DIGITS[value] for value in values)
