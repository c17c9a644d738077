"""The sentence splitter of compatibility specification section 2.2, fed run by run.

Pieces end at terminators. They are joined into segments of about 60 to 80 units (characters in
Chinese, text tokens elsewhere); a last segment under 20 units is appended to the one before it.
Long pieces are not cut here (see `cut_to_limit`). `Split` says whether a model directory joins at
all: the key `text.split` of its yaml, an extension of ours.
"""

import enum
import unicodedata
from collections.abc import Callable, Iterator

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from services.frontend.text.language import CHINESE, ENGLISH
from services.frontend.tokenizers.placeholders import before_marks

MOST = 80
ENOUGH = 60
TOO_SHORT = 20
_TERMINATORS = {CHINESE: "。？！；：、.?!;", ENGLISH: ".?!;:"}
_OTHER_TERMINATORS = "。？！；.?!;؟۔।"
_QUOTES = '"”'
_FULL_WIDTH_NAMES = ("CJK", "HIRAGANA", "KATAKANA", "IDEOGRAPHIC", "FULLWIDTH")
_MARKS = "PS"
_UNSPOKEN = "PSZCM"
_PAUSES = "，,、；：—…）)"
_MOST_TRIED = 8


class Splitter:
    """Splits one text. Call `feed` with its runs in order, then `finish`; both yield final
    segments.

    length: returns the length of a text in text tokens; used for every language but Chinese, where
    characters count. most_characters: pieces are not joined to longer segments; 0: no limit. A
    single piece may be longer (see `caller_limit`).
    """

    def __init__(self, language: str, length: Callable[[str], int], most_characters: int = 0) -> None:
        self._terminators = _TERMINATORS.get(language, _OTHER_TERMINATORS)
        self._length = len if language == CHINESE else length
        self._full_stop = "。" if language == CHINESE else "."
        self._by_script = language not in _TERMINATORS
        self._most_characters = most_characters
        self._rest, self._scanned = "", 0
        self._last_character = ""
        self._piece: str | None = None
        self._segment, self._size = "", 0
        self._held: str | None = None

    def feed(self, run: str) -> Iterator[str]:
        """Segments that `run` completes."""
        if run:
            self._rest += run
            self._last_character = run[-1]
            yield from self._scan(len(self._rest) - 1)

    def finish(self) -> Iterator[str]:
        """The remaining segments at the end of the text."""
        if not self._last_character:
            return
        if self._last_character not in self._terminators:
            full_width = unicodedata.name(self._last_character, "").startswith(_FULL_WIDTH_NAMES)
            self._rest += "。" if self._by_script and full_width else self._full_stop
        yield from self._scan(len(self._rest))
        if self._piece is not None:
            yield from self._join(self._piece)
        is_short = self._segment and self._size < TOO_SHORT
        if self._held is not None and is_short and self._fits(self._held + self._segment):
            self._held, self._segment = self._held + self._segment, ""
        yield from (segment for segment in (self._held, self._segment) if segment)

    def _scan(self, end: int) -> Iterator[str]:
        """Pass 1 up to `end`, which leaves one character of look-ahead unless the text is complete.
        The newest piece is held: a quote after a later terminator may still belong to it.
        """
        start, index = 0, self._scanned
        while index < end:
            if self._rest[index] in self._terminators:
                if index > start:
                    if self._piece is not None:
                        yield from self._join(self._piece)
                    self._piece = self._rest[start : index + 1]
                start = index + 1
                quote = self._rest[start : start + 1]
                if quote and quote in _QUOTES:
                    self._piece = None if self._piece is None else self._piece + quote
                    start = index = index + 2
                    continue
            index += 1
        self._rest, self._scanned = self._rest[start:], index - start

    def _join(self, piece: str) -> Iterator[str]:
        """Pass 2. The newest segment is held: a short last one may be appended to it."""
        size = self._length(self._segment + piece)
        if (size > MOST and self._size > ENOUGH) or (self._segment and not self._fits(self._segment + piece)):
            if self._held is not None:
                yield self._held
            self._held, self._segment = self._segment, ""
            size = self._length(piece)
        self._segment, self._size = self._segment + piece, size

    def _fits(self, segment: str) -> bool:
        return not self._most_characters or len(segment) <= self._most_characters


def is_only_marks(segment: str, *, reference: bool = False) -> bool:
    """Whether nothing in `segment` can be spoken: only punctuation and symbols, and unless
    `reference` also blanks, combining marks and control characters.
    """
    return all(unicodedata.category(character)[0] in (_MARKS if reference else _UNSPOKEN) for character in segment)


def cut_to_limit(segment: str, limit: int, length: Callable[[str], int]) -> Iterator[str]:
    """`segment` in parts of at most `limit` text tokens, cut after the last mark of a pause (comma,
    dash, bracket) in the second half, else at the last blank there, else between characters, but
    not between marks that belong to one word. The parts joined are the segment.

    A segment with more than 8 characters per allowed token is cut without being measured, so that
    the work is linear in the text.
    """
    while len(segment) > 8 * limit or length(segment) > limit:
        part = _longest_prefix(segment, limit, length)
        # A shorter text may have more tokens where words sound different before a pause.
        cut = next((place for place in _places(segment, part) if length(segment[:place]) <= limit), 0)
        cut = cut or before_marks(segment, part)
        yield segment[:cut]
        segment = segment[cut:]
    yield segment


def _places(segment: str, part: int) -> Iterator[int]:
    """Candidate ends within the first `part` characters, best first, the last of each kind
    first.
    """
    half = part // 2
    for marks in (_PAUSES, " "):
        place = max(segment.rfind(mark, half, part) for mark in marks)
        for _ in range(_MOST_TRIED):
            if place <= 0:
                break
            if marks == " ":
                yield place
            # A comma between digits does not separate clauses.
            elif place + 1 <= part and not segment[place + 1 : place + 2].isdigit():
                yield place + 1
            place = max(segment.rfind(mark, half, place) for mark in marks)


def _longest_prefix(segment: str, limit: int, length: Callable[[str], int]) -> int:
    """Characters in the longest prefix that fits: at most `limit`, since a character is at most one
    token in all but rare scripts.
    """
    fits, too_long = 1, min(len(segment), limit) + 1
    if length(segment[: too_long - 1]) <= limit:
        return too_long - 1
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if length(segment[:middle]) <= limit:
            fits = middle
        else:
            too_long = middle
    return fits


class Split(enum.StrEnum):
    """The values of the key."""

    JOINED = "joined"
    """Short sentences are joined into segments of about 60 to 80 text tokens, as in the reference
    (compatibility specification section 2.2): for models that need some length to speak well.
    """
    SENTENCES = "sentences"
    """Sentence by sentence, as in streaming: for models that omit words when one utterance has
    several sentences.
    """


def split_mode(directory: ModelDirectory) -> Split:
    """Return the mode of a directory; JOINED when the key is missing, as in published ones. Raises
    ModelError for an invalid value.
    """
    section = directory.config().get("text", {})
    value = section.get("split", Split.JOINED.value) if isinstance(section, dict) else section
    try:
        return Split(value)
    except ValueError:
        raise ModelError(f"{directory.path}: yaml key text.split is {value!r}, expected {' or '.join(Split)}") from None
