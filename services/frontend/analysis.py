"""A text becomes sentences with token ids: the one path behind every way of sending text."""

from collections.abc import Iterator
from dataclasses import dataclass

from cosyserve.spec import LONGEST_SENTENCE
from services.frontend import carriers
from services.frontend.addresses import spoken_addresses
from services.frontend.characters import speakable, without_pictures
from services.frontend.control_tokens import without_controls
from services.frontend.course import Course
from services.frontend.language import CHINESE, ENGLISH, language_of
from services.frontend.markdown import without_markdown
from services.frontend.normalize import Normalizer
from services.frontend.partial import PartialSentences, Spoken
from services.frontend.pauses import Pause, passages
from services.frontend.pronunciations import MOST_OF_A_SERVER, Dictionary
from services.frontend.scripts import language_by_script, spans
from services.frontend.sentences import MOST, Splitter, cut_to_limit, is_only_marks
from services.frontend.text_tokenizer import GrowingIds, Tokenizer
from services.frontend.units import runs_of

RUN_CHARACTERS = 200
"""Characters normalised at a time: about 0.02 s, during which the text normalisation package holds the interpreter lock."""
MEASURED_CHARACTERS = 512
"""Of a segment: what is longer has the 80 tokens at which a segment may end, or nothing in it is spoken."""
NO_DICTIONARY = Dictionary({}, None, MOST_OF_A_SERVER)


@dataclass(frozen=True)
class Reading:
    """How a request wants its text read."""

    language_code: str = ""
    """BCP-47 tag, or empty: by script."""
    allow_control_tokens: bool = False
    """Parse `<|...|>` control tokens; a text that has them is then not normalised, as specified."""
    dictionary: Dictionary | None = None
    """The server's and the request's pronunciations; None: the server's."""


DEFAULT_READING = Reading()


@dataclass(frozen=True)
class Sentence:
    """One utterance of the speech-token model."""

    text: str
    """As it will be spoken."""
    token_ids: tuple[int, ...]
    """1 to 200 ids (spec.LONGEST_SENTENCE)."""
    language: str
    """As `services.frontend.language.language_of` gives it."""
    words: tuple[tuple[str, int, int], ...] = ()
    """Each with the place of its first id and the number of its ids; see `Tokenizer.spoken_words`."""


class Analyzer:
    """Normalises, splits and tokenises; holds no state of a request.

    allow_special: parse `<|...|>` control tokens in every text (the reference does); otherwise only where a reading allows it:
    elsewhere they are neither parsed nor spoken. dictionary: the server's pronunciations.

    Texts of up to 200 characters are treated as compatibility specification section 2.1 says, faults mended (docs/text.md names them all).
    Longer ones are normalised in runs of whole sentences, so that the first sentence need not wait for the last and no call holds the
    interpreter for long; only a text of 200 characters without any sentence end is cut at a blank or comma for it. A normaliser in
    reference mode sees the text as a whole, and as it is.
    """

    def __init__(
        self, normalizer: Normalizer, tokenizer: Tokenizer, *, allow_special: bool = False, dictionary: Dictionary = NO_DICTIONARY
    ) -> None:
        self._normalizer = normalizer
        self.tokenizer = tokenizer
        self._allow_special = allow_special
        self._dictionary = dictionary
        self._reference = normalizer.reference

    def reading(self, language_code: str, *, allow_control_tokens: bool, pronunciations: dict[str, str]) -> Reading:
        """A request's reading, the server's pronunciations behind its own. Raises InvalidRequest naming what is no pronunciation."""
        dictionary = self._dictionary.with_request(pronunciations, self.tokenizer.is_phonemes)
        return Reading(language_code, allow_control_tokens, dictionary)

    def parts(self, text: str, reading: Reading = DEFAULT_READING, course: Course | None = None) -> "Iterator[Sentence | Pause]":
        """The sentences of `text` and the pauses that it asks for, in order. course: of the text that this is a unit of; None for a whole
        text, of which a passage without letters is read in the language before it, else in that of the text.

        Raises InvalidRequest for a pause outside its range, before anything else, for a language code that is none, and for pronunciations
        that make the text too long.
        """
        found = list(passages(text))
        if course is None:
            words = [passage for passage in found if isinstance(passage, str)]
            course = Course(language_by_script(" ".join(words)) if len(words) > 1 else "")
        for passage in found:
            if isinstance(passage, Pause):
                yield passage
            else:
                yield from self.sentences(passage, reading.language_code, reading, course)

    def sentences(
        self, text: str, language_code: str = "", reading: Reading = DEFAULT_READING, course: Course | None = None
    ) -> Iterator[Sentence]:
        """The sentences of `text` in order, each as soon as it is known. Nothing is left of a text that holds only punctuation and
        pictures, and nothing of what the tokenizer cannot express (another script, for a model of English phonemes). course: of the text
        that this is a part of.

        Raises InvalidRequest when `language_code` is neither empty nor a BCP-47 tag, and for pronunciations that make the text too long.
        """
        source = _Source(self, text, language_code, reading, course or Course())
        for segment in self._segments(source):
            for part in cut_to_limit(segment, LONGEST_SENTENCE, source.length):
                ids = source.encode(part)
                if ids:
                    words = self.tokenizer.spoken_words(carriers.for_tokenizer(part, source.sounds), allow_special=source.allow_special)
                    yield Sentence(carriers.for_reader(part, source.sounds), tuple(ids), source.language, tuple(words))

    def partial(self, reading: Reading, course: Course) -> PartialSentences:
        """The sentences of one text while it is being written, language decided run by run where the code is empty. course: of that text,
        by run."""

        def spoken(run: str, before: str, last: bool) -> Spoken:
            source = _Source(self, run, reading.language_code, reading, course, alone=last and not before)
            text = source.text if source.as_is else "".join(self._run(source.text, source.language, before, last))
            return Spoken(carriers.for_tokenizer(text, source.sounds), source.language)

        allow_special = self._allow_special or reading.allow_control_tokens
        dictionary = reading.dictionary or self._dictionary

        def growing() -> GrowingIds:
            course.begin_unit()
            return self.tokenizer.growing(allow_special=allow_special)

        return PartialSentences(spoken, growing, dictionary.has_begun)

    def segments(self, text: str, language_code: str = "") -> Iterator[str]:
        """The normalised and split text (the specification's split mode), before anything is cut to the model's limit."""
        source = _Source(self, text, language_code, DEFAULT_READING, Course())
        return (carriers.for_reader(segment, source.sounds) for segment in self._segments(source))

    def normalise(self, text: str, language_code: str = "") -> str:
        """The normalised text as a whole (the specification's no-split mode, used for prompt transcripts); no dictionary is asked."""
        source = _Source(self, text, language_code, Reading(dictionary=NO_DICTIONARY), Course())
        if source.as_is:
            return source.text
        return carriers.for_reader("".join(self._runs(source)), source.sounds)

    def _segments(self, source: "_Source") -> Iterator[str]:
        if source.as_is or (self._reference and not source.text):
            yield from [source.text] if self._reference else self._speakable(iter([source.text]), source)
            return
        splitter = Splitter(source.language, source.length if self._reference else source.length_of_start)
        for run in self._runs(source):
            yield from self._speakable(splitter.feed(run), source)
        yield from self._speakable(splitter.finish(), source)

    def _runs(self, source: "_Source") -> Iterator[str]:
        text = source.text.strip()
        runs = [text] if self._reference else list(runs_of(text, RUN_CHARACTERS))
        before = ""
        for index, run in enumerate(runs):
            last = index == len(runs) - 1
            yield from self._run(run, source.language, before, last)
            before = run[-1:]

    def _run(self, run: str, language: str, before: str, last: bool) -> Iterator[str]:
        if self._reference or language not in (CHINESE, ENGLISH):
            yield self._normalizer.normalise(run, language, before=before, last=last)
        else:
            yield from self._spans(run, language, before, last)

    def _spans(self, run: str, language: str, before: str, last: bool) -> Iterator[str]:
        """Each stretch of one script in its own language."""
        found = spans(run, language)
        for index, span in enumerate(found):
            spoken = self._normalizer.normalise(span.text, span.language, before=before, last=last and index == len(found) - 1)
            # The blank rule of Chinese holds between two scripts as well.
            meets_chinese = index + 1 < len(found) and found[index + 1].language == CHINESE and language == CHINESE
            yield spoken.rstrip(" ") if meets_chinese else spoken
            before = span.text[-1:]

    def _speakable(self, segments: Iterator[str], source: "_Source") -> Iterator[str]:
        return (s for s in segments if not is_only_marks(carriers.for_tokenizer(s, source.sounds), reference=self._reference))


class _Source:
    """One text on its way: as it will be normalised, and what was taken out of it meanwhile."""

    def __init__(self, analyzer: Analyzer, text: str, language_code: str, reading: Reading, course: Course, *, alone: bool = True) -> None:
        self._tokenizer = analyzer.tokenizer
        self.allow_special = analyzer._allow_special or reading.allow_control_tokens
        self.sounds: list[str] = []
        """Phonemes that a dictionary gave, in order; their carriers count them."""
        if analyzer._reference:
            self.text, self.as_is, self.language = text, _is_markup(text), language_of(language_code, text)
            return
        text = speakable(text)
        self.as_is = self.allow_special and _is_markup(text)
        if not self.as_is:
            text = (reading.dictionary or analyzer._dictionary).apply(carriers.carry_marks(text), self._carry, course)
            text = without_pictures(without_markdown(without_controls(carriers.carry_marks(text))))
        if not language_code:
            course.language = language_by_script(without_controls(text), course.language, alone=alone)
        self.language = language_of(language_code, text) if language_code else course.language or ENGLISH
        self.text = text if self.as_is else spoken_addresses(text, self.language)

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(carriers.for_tokenizer(text, self.sounds), allow_special=self.allow_special)

    def length(self, text: str) -> int:
        return len(self.encode(text))

    def length_of_start(self, text: str) -> int:
        """Enough for the splitter, which only asks about lengths up to 80 tokens."""
        return self.length(text) if len(text) <= MEASURED_CHARACTERS else MOST + 1

    def _carry(self, phonemes: str) -> str:
        if len(self.sounds) >= carriers.MOST_SOUNDS:
            return ""
        self.sounds.append(phonemes)
        return carriers.carry_sound(len(self.sounds) - 1)


def _is_markup(text: str) -> bool:
    return "<|" in text and "|>" in text
