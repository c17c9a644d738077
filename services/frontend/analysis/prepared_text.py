"""A text prepared for normalisation: markup and control tokens removed, phonemes replaced by
placeholders, language chosen; with the options with which it is read, and the warnings about what a
model leaves out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cosyserve.errors import InvalidRequest
from services.frontend.analysis.pronunciations import Dictionary
from services.frontend.analysis.reading_context import ReadingContext
from services.frontend.normalization.addresses import spoken_addresses
from services.frontend.normalization.markdown import without_markdown
from services.frontend.segmentation.language_spans import language_by_script
from services.frontend.segmentation.sentence_splitter import MOST
from services.frontend.ssml.replacements import Inserted, speakable_around, with_inserted
from services.frontend.text.characters import has_meaning, speakable, stretches, without_emoji
from services.frontend.text.language import ENGLISH, language_of
from services.frontend.text.text_scheduler import yield_turn
from services.frontend.text.text_warnings import Kind, WarningLog
from services.frontend.tokenizers import placeholders
from services.frontend.tokenizers.placeholders import ANY_CONTROL, END_OF_PROMPT, PLACEHOLDERS, without_controls
from services.frontend.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class Reading:
    """The options with which the text of a request is read."""

    language_code: str = ""
    """BCP-47 tag, or empty to choose by script."""
    allow_control_tokens: bool = False
    """Parse `<|...|>` control tokens. A text that has them is then not normalised, according to the
    specification.
    """
    dictionary: Dictionary | None = None
    """The pronunciations of the server and the request; None: the server's."""
    joined: bool = False
    """Join short sentences regardless of the model directory (Split.JOINED)."""
    own_readings: bool = True
    """As in `Normalizer.normalise`."""
    most_characters: int = 0
    """Longest sentence that the caller allows (`segmentation.caller_limit`); 0: no limit."""
    speed: float = 1.0
    """Speed of the request, multiplied by the rates of an SSML document."""
    log: WarningLog | None = None
    """Receives a warning for text that is not spoken as it is written; None: warnings are dropped.
    """
    inserted: Sequence[Inserted] | None = None
    """What the placeholders of an SSML document represent; None: the text is plain."""


DEFAULT_READING = Reading()


MEASURED_CHARACTERS = 512
"""Characters. A longer segment certainly has the 80 tokens at which a segment may end, or nothing
in it is spoken.
"""


class AnalyzerConfig(NamedTuple):
    """The options and resources that an analyzer uses for every text. reference: leave the text
    unchanged.
    """

    tokenizer: Tokenizer
    allow_special: bool
    dictionary: Dictionary
    reference: bool


class PreparedText:
    """One text prepared for normalisation, with the phonemes that its placeholders represent."""

    def __init__(
        self,
        config: AnalyzerConfig,
        text: str,
        language_code: str,
        reading: Reading,
        context: ReadingContext,
        *,
        whole_unit: bool = True,
    ) -> None:
        self._tokenizer, self._log, marks = config.tokenizer, reading.log, config.tokenizer.marks
        self.own_readings = reading.own_readings
        self.allow_special = config.allow_special or reading.allow_control_tokens
        self.phonemes: list[str] = []
        """Phonemes from a dictionary, in order; a placeholder is an index into this list."""
        if config.reference:
            self.text, self.as_is, self.language = text, _is_markup(text), language_of(language_code, text)
            return
        plain = reading.inserted is None
        text = speakable(text) if plain else speakable_around(text)
        self.as_is = self.allow_special and _is_markup(text)
        if self.as_is:
            require_known_controls("text", text, self._tokenizer)
        else:
            if plain and self._log is not None and (tags := _SSML.findall(text)):
                self._log.add(Kind.UNSUPPORTED_MARKUP, SSML_OUTSIDE_DOCUMENT, (name.lower() for name in tags))
            text = (reading.dictionary or config.dictionary).apply(marks.replace(text), self._add_phonemes, context)
            yield_turn()
            text = without_controls(marks.replace(text))
            yield_turn()
            text = without_emoji(without_markdown(text) if plain else text)
        yield_turn()
        if not language_code:
            context.language = language_by_script(without_controls(text), context.language, whole_unit=whole_unit)
        self.language = language_of(language_code, text) if language_code else context.language or ENGLISH
        readable = self._tokenizer.languages
        if not language_code and readable and self.language not in readable:
            # Spans of other scripts cause a warning and are left out; the digits among them are
            # read in a language that the model supports.
            self.language = readable[0]
        if reading.inserted:
            reads_phonemes = self._tokenizer.is_phonemes is not None
            written, known = len(text), len(self.phonemes)
            text = with_inserted(text, reading.inserted, self.language, self._add_phonemes, phonemes=reads_phonemes)
            context.respell(0, max(0, len(text) - written) + sum(map(len, self.phonemes[known:])))
        yield_turn()
        self.text = text if self.as_is else spoken_addresses(text, self.language)

    def note(self, text: str, *, dropped: bool) -> None:
        """Warn about what the model cannot speak in a span of normalised text with its
        placeholders; dropped: that is all of it.
        """
        if self._log is None:
            return
        marks = [
            mark
            for mark in map(self._tokenizer.marks.of, "".join(PLACEHOLDERS.findall(text)))
            if mark and mark not in _PAGE_MARKS and self._tokenizer.id_of(mark) is None
        ]
        if marks:
            self._log.add(Kind.UNREADABLE, "marks of sound that this model has no tokens for are left out", marks)
        text = PLACEHOLDERS.sub(" ", text)
        unread = stretches(text, lambda place: has_meaning(text[place])) if dropped else self._tokenizer.unread(text)
        if unread:
            message = f"letters or signs that this model cannot speak are left out{languages(self._tokenizer)}"
            self._log.add(Kind.UNREADABLE, message, unread)

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(
            self._tokenizer.marks.for_tokenizer(text, self.phonemes), allow_special=self.allow_special
        )

    def length(self, text: str) -> int:
        yield_turn()
        return len(self.encode(text))

    def length_of_start(self, text: str) -> int:
        """A token count that is exact for short text, for the splitter, which compares only with
        lengths up to 80 tokens.
        """
        return self.length(text) if len(text) <= MEASURED_CHARACTERS else MOST + 1

    def _add_phonemes(self, phonemes: str) -> str:
        if len(self.phonemes) >= placeholders.MOST_PHONEMES:
            return ""
        self.phonemes.append(phonemes)
        return placeholders.phoneme_placeholder(len(self.phonemes) - 1)


def _is_markup(text: str) -> bool:
    return "<|" in text and "|>" in text


def require_known_controls(what: str, text: str, tokenizer: Tokenizer) -> None:
    """Raise InvalidRequest naming the first control token in `text` that the model has no token
    for. A model without the mark of a prompt has none and leaves all of them out.
    """
    if tokenizer.id_of(END_OF_PROMPT) is None:
        return
    unknown = next((match[0] for match in ANY_CONTROL.finditer(text) if tokenizer.id_of(match[0]) is None), None)
    if unknown is not None:
        raise InvalidRequest(f"{what} holds {unknown}, which is no special token of this model")


_SSML = re.compile(r"</?(say-as|phoneme|prosody|emphasis|voice|speak|lang|break|sub(?=\s+alias))\b", re.IGNORECASE)
_PAGE_MARKS = ("<strong>", "</strong>")
"""Sound tags that are HTML as well: leaving them out needs no warning."""
SSML_OUTSIDE_DOCUMENT = (
    "SSML is parsed only in a text that begins with <speak; elsewhere its tags are not spoken and the text inside "
    "is read"
)


def languages(tokenizer: Tokenizer) -> str:
    """The end of a message that names the languages that a model's tokenizer can read; empty where
    it reads every language.
    """
    return f"; the model reads {', '.join(tokenizer.languages)}" if tokenizer.languages else ""
