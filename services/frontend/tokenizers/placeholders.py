"""Placeholders for parts of a text that must pass normalisation and splitting unchanged: marks such
as `[laughter]` (`marks`) and given phonemes. Each is one private-use character until the end.

A single character cannot be cut, is not a word to the grammars, and cannot be written by a caller
(`characters.speakable` removes private-use characters).
"""

import re
from collections.abc import Callable, Sequence

from cosyserve.generations.cosyvoice2 import SOUND_MARKS

END_OF_TEXT = "<|endoftext|>"
END_OF_PROMPT = "<|endofprompt|>"
"""Separates the instruction or prompt from the text that is spoken."""
CONTROLS = (END_OF_TEXT, "<|im_start|>", "<|im_end|>", END_OF_PROMPT)
"""Tokens that steer every model; parsed in text only when allowed."""
MARKUP = SOUND_MARKS
"""Tokens for sounds and stress that every model has or leaves out; always parsed."""
ANY_CONTROL = re.compile(r"<\|[A-Za-z0-9_]{1,32}\|>")


def without_controls(text: str) -> str:
    """`text` with a blank in place of everything in the form of a control token, known or not: an
    unparsed one is not spoken either.
    """
    return ANY_CONTROL.sub(" ", text)


_FIRST_MARK, _LAST_MARK = 0xE000, 0xEFFF
_FIRST_PHONEMES = 0xF0000
MOST_PHONEMES = 60_000
PLACEHOLDERS = re.compile(f"([{chr(_FIRST_MARK)}-{chr(_LAST_MARK)}\U000f0000-\U000ffffd]+)")
BEGIN, BLANK, END = "\uf8f0", "\uf8f1", "\uf8f2"
"""Delimit given phonemes, and separate their words, in the text that the tokenizer receives."""
_FIRST_INSERTED = 0x100000
INSERTED = re.compile("[\U00100000-\U0010fffd]")
"""What an SSML document inserts (`ssml.replacements`), until the language around it is known."""


class Marks:
    """The special tokens of one tokenizer that are parsed in every text, in the form in which they
    are written (NFC, upper and lower case differ).

    Raises ValueError for more marks than there are placeholders.
    """

    def __init__(self, marks: Sequence[str]) -> None:
        if len(marks) > _LAST_MARK - _FIRST_MARK + 1:
            raise ValueError(f"{len(marks)} marks, allowed are at most {_LAST_MARK - _FIRST_MARK + 1}")
        self._marks = tuple(marks)
        self._written = re.compile("|".join(map(_pattern, marks)))
        self._placeholders = {mark: chr(_FIRST_MARK + place) for place, mark in enumerate(marks)}

    def __contains__(self, mark: str) -> bool:
        return mark in self._placeholders

    def replace(self, text: str) -> str:
        """`text` with a placeholder for each mark (`[laughter]`, `<strong>`)."""
        if "[" in text or "<" in text:
            return self._written.sub(lambda match: self._placeholders[match[0]], text)
        return text

    def of(self, placeholder: str) -> str:
        """The mark that a placeholder represents; empty for one of phonemes."""
        code = ord(placeholder)
        return self._marks[code - _FIRST_MARK] if code < _FIRST_PHONEMES else ""

    def for_tokenizer(self, text: str, phonemes: Sequence[str]) -> str:
        """`text` with its marks as they are written and phonemes between `BEGIN` and `END`."""

        def given(sounds: str) -> str:
            return BEGIN + sounds.replace(" ", BLANK) + END

        return self._opened(text, phonemes, given)

    def for_reader(self, text: str, phonemes: Sequence[str]) -> str:
        """`text` with its marks as they are written and phonemes between slashes."""
        return self._opened(text, phonemes, lambda sounds: f"/{sounds}/")

    def _opened(self, text: str, phonemes: Sequence[str], given: Callable[[str], str]) -> str:
        def opened(placeholder: str) -> str:
            place = ord(placeholder) - _FIRST_PHONEMES
            if place < 0:
                return self.of(placeholder)
            return given(phonemes[place]) if place < len(phonemes) else ""

        return PLACEHOLDERS.sub(lambda match: "".join(map(opened, match[0])), text)


_TARGET = r"(?!\((?:[a-z][a-z0-9+.-]{0,20}:|[/#.]))"
_TICKED = "[x]"


def _pattern(mark: str) -> str:
    """A letter in brackets is also what Markdown writes around the text of a link and in the box of
    a task that is done: there it is no mark.
    """
    if mark in MARKUP:
        return re.escape(mark)
    return ("(?<![-*+] )" if mark == _TICKED else "") + re.escape(mark) + _TARGET


def before_marks(text: str, cut: int) -> int:
    """`cut`, or where it lies between two placeholders, such as the phonemes of one word, the
    beginning of their run. A run that is all of the text before `cut` is cut there.
    """
    begin = cut
    while 0 < begin < len(text) and PLACEHOLDERS.match(text[begin]) and PLACEHOLDERS.match(text[begin - 1]):
        begin -= 1
    return begin or cut


def phoneme_placeholder(place: int) -> str:
    """The placeholder of entry `place` of the call's list of phonemes."""
    return chr(_FIRST_PHONEMES + place)


def inserted_placeholder(place: int) -> str:
    """The placeholder of entry `place` of what a document inserts; `ssml.elements.LONGEST_DOCUMENT`
    keeps it in its range.
    """
    return chr(_FIRST_INSERTED + place)


def place_of(inserted: str) -> int:
    """The index of the entry that a placeholder of INSERTED represents."""
    return ord(inserted) - _FIRST_INSERTED
