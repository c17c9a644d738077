"""Pronunciation dictionaries of the server and of a request: written forms and their replacements.

A written form matches whole words only; in Chinese and other scripts that put no spaces between
words it matches anywhere. A form with a capital letter matches case-sensitively, a form without one
matches in any case. Where several forms match at one position, the longest is applied; of equally
long forms, the request's before the server's, then the case-sensitive one before the other.

A replacement is not searched for further forms. It is either a respelling, which is read like any
text, or, for a model that reads phonemes, phonemes between slashes: `/nˈIki/`, or as the
International Phonetic Alphabet writes them: `/ipa:ˈnaɪki/`. For a model that has marks for
pronunciations they are between slashes too: phonemes in ARPAbet (`/N AY1 K IY0/`), syllables of
pinyin (`/nai4 ji1/`), or IPA; they become marks in the text.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from cosyserve.errors import InvalidRequest
from services.frontend.analysis.reading_context import ReadingContext
from services.frontend.text.characters import speakable
from services.frontend.tokenizers.inpainting.pronunciation import ALPHABETS, PronunciationMarks
from services.frontend.tokenizers.phonemes.symbols import misaki_of

MOST_OF_A_REQUEST = 200
MOST_OF_A_SERVER = 20_000
LONGEST_WRITTEN = 64
LONGEST_SPOKEN = 200
_LETTER = re.compile("[0-9A-Za-z\u00c0-\u024f\u0300-\u036f\u0370-\u0e00\u1e00-\u1fff]")
_GAP = re.compile(r"\s+|(?=[，、：])")
_SLASHED = re.compile(r"/(?P<ipa>ipa:)?(?P<phonemes>[^/]+)/")
_AS_MARKS = re.compile(rf"/(?:(?P<alphabet>{'|'.join(ALPHABETS)}):)?(?P<sounds>[^/]+)/")


class Dictionary:
    """Immutable and thread-safe. entries: written form to spoken form. is_phonemes: whether
    the model has all phonemes of a word; None for a model that reads text. most: maximum number of
    entries. fallback: the dictionary to search where this one has no matching form. marks: how a
    model that reads text takes pronunciations; None if it takes none.

    Raises InvalidRequest when there are too many entries, or naming an entry that is empty, too
    long or invalid.
    """

    def __init__(
        self,
        entries: Mapping[str, str],
        is_phonemes: Callable[[str], bool] | None,
        most: int,
        fallback: "Dictionary | None" = None,
        marks: PronunciationMarks | None = None,
    ) -> None:
        if len(entries) > most:
            raise InvalidRequest(f"pronunciations has {len(entries)} entries, allowed are at most {most}")
        own = {speakable(written): _checked(written, spoken, is_phonemes, marks) for written, spoken in entries.items()}
        self._fallback = fallback
        self._exact = {form: spoken for form, spoken in own.items() if form != form.lower()}
        self._folded = {form: spoken for form, spoken in own.items() if form == form.lower()}
        self._lengths: dict[str, list[int]] = {}
        for form in own:
            self._lengths.setdefault(form[0].lower(), []).append(len(form))
        for first, lengths in self._lengths.items():
            self._lengths[first] = sorted(set(lengths), reverse=True)
        self._begun = {form[: gap.start()].lower() for form in own for gap in _GAP.finditer(form)}

    def with_request(
        self,
        entries: Mapping[str, str],
        is_phonemes: Callable[[str], bool] | None,
        marks: PronunciationMarks | None = None,
    ) -> "Dictionary":
        """A dictionary of a request's entries that falls back on this one; this one itself if there
        are no entries. Raises InvalidRequest as the constructor does.
        """
        return Dictionary(entries, is_phonemes, MOST_OF_A_REQUEST, self, marks) if entries else self

    def apply(self, text: str, placeholder: Callable[[str], str], context: ReadingContext | None = None) -> str:
        """`text` with every written form replaced. placeholder: returns the character that
        represents the given phonemes in the text. context: state of the text that `text` is a part
        of; None if `text` is complete.

        Raises InvalidRequest when replacements make the text too long (`ReadingContext.respell`).
        """
        if not self._lengths and (self._fallback is None or not self._fallback._lengths):
            return text
        parts, start, place, grown = [], 0, 0, 0
        while place < len(text):
            match = self._at(text, place)
            if match is None:
                place += 1
                continue
            end, spoken = match
            slashed = _SLASHED.fullmatch(spoken)
            parts += [text[start:place], placeholder(slashed["phonemes"]) if slashed else spoken]
            grown += len(spoken) - (end - place)
            start = place = end
        (context or ReadingContext()).respell(len(text), len(text) + grown)
        return "".join([*parts, text[start:]])

    def has_begun(self, text: str) -> bool:
        """Whether `text`, which ends between two words, may end with the first words of a written
        form of several words.
        """
        end = text[-LONGEST_WRITTEN:].lower()
        own = bool(self._begun) and any(end[place:] in self._begun for place in range(len(end)))
        return own or (self._fallback is not None and self._fallback.has_begun(text))

    def _at(self, text: str, place: int) -> tuple[int, str] | None:
        """The end and the replacement of the longest form that begins at index `place`; None if no
        form does.
        """
        first = text[place].lower()
        lengths = self._lengths.get(first, [])
        fallback_lengths = [] if self._fallback is None else self._fallback._lengths.get(first, [])
        for length in sorted({*lengths, *fallback_lengths}, reverse=True) if fallback_lengths else lengths:
            form = text[place : place + length]
            spoken = self._spoken(form) if len(form) == length else None
            if spoken is not None and _is_whole(text, place, place + length):
                return place + length, spoken
        return None

    def _spoken(self, form: str) -> str | None:
        own = self._exact.get(form) or self._folded.get(form.lower())
        return own or (None if self._fallback is None else self._fallback._spoken(form))


def read_dictionary(
    path: Path, is_phonemes: Callable[[str], bool] | None, marks: PronunciationMarks | None = None
) -> Dictionary:
    """Read the server's dictionary: a JSON file with an object of written form to spoken form.

    Raises ValueError naming the file when it is unreadable or malformed, and InvalidRequest for an
    invalid entry or too many entries.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a readable JSON file: {error}") from error
    if not isinstance(entries, dict) or not all(isinstance(spoken, str) for spoken in entries.values()):
        raise ValueError(f"{path}: expected a JSON object of written form to spoken form")
    return Dictionary(entries, is_phonemes, MOST_OF_A_SERVER, marks=marks)


def _checked(
    written: str, spoken: str, is_phonemes: Callable[[str], bool] | None, marks: PronunciationMarks | None
) -> str:
    """`spoken` without unspeakable characters. Raises InvalidRequest for an invalid entry."""
    if not 1 <= len(written) <= LONGEST_WRITTEN or written != written.strip() or not any(c.isalnum() for c in written):
        raise InvalidRequest(
            f"pronunciations: a written form has 1 to {LONGEST_WRITTEN} characters, a letter or digit among them, no "
            "blank around them; "
            f"got {len(written)}: {written[:LONGEST_WRITTEN]!r}"
        )
    # This also removes private-use characters, which are reserved for `tokenizers.placeholders`.
    spoken = speakable(spoken)
    if not 1 <= len(spoken.strip()) <= LONGEST_SPOKEN:
        raise InvalidRequest(
            f"pronunciations[{written!r}] has {len(spoken.strip())} characters without the blanks around it, "
            f"allowed are 1 to {LONGEST_SPOKEN}"
        )
    if marks is not None:
        return _as_marks(written, spoken, marks)
    slashed = _SLASHED.fullmatch(spoken)
    if slashed is None:
        return spoken
    if is_phonemes is None:
        raise InvalidRequest(f"pronunciations[{written!r}] is phonemes, this model reads text: give a respelling")
    if slashed["ipa"]:
        try:
            spoken = f"/{misaki_of(slashed['phonemes'])}/"
        except ValueError as error:
            raise InvalidRequest(f"pronunciations[{written!r}]: {error}") from error
    if not all(is_phonemes(word) for word in spoken.strip("/").split(" ")):
        raise InvalidRequest(
            f"pronunciations[{written!r}] is {spoken!r}; expected words of this model's phonemes divided by single "
            "blanks"
        )
    return spoken


def _as_marks(written: str, spoken: str, marks: PronunciationMarks) -> str:
    """A pronunciation between slashes as marks, a respelling as it is."""
    slashed = _AS_MARKS.fullmatch(spoken.strip())
    try:
        if slashed is not None:
            return marks.of(slashed["alphabet"] or "", slashed["sounds"])
        marks.require_known(spoken)
    except ValueError as error:
        raise InvalidRequest(f"pronunciations[{written!r}]: {error}") from error
    return spoken


def _is_whole(text: str, start: int, end: int) -> bool:
    """Whether neither edge of `text[start:end]` lies between two letters or digits of scripts that
    put spaces between words.
    """
    return not (_joined(text[start - 1 : start], text[start]) or _joined(text[end - 1], text[end : end + 1]))


def _joined(left: str, right: str) -> bool:
    return bool(left and right and _LETTER.match(left) and _LETTER.match(right))
