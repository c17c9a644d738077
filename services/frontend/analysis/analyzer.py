"""Text to sentences with token ids: the single path for every way of sending text."""

from collections.abc import Iterator

from cosyserve.spec import LONGEST_SENTENCE
from services.frontend.analysis.incremental_sentences import IncrementalSentences, Sentence
from services.frontend.analysis.prepared_text import DEFAULT_READING, AnalyzerConfig, PreparedText, Reading
from services.frontend.analysis.pronunciations import MOST_OF_A_SERVER, Dictionary
from services.frontend.analysis.reading_context import ReadingContext
from services.frontend.normalization.english_readings import has_begun
from services.frontend.normalization.normalize import Normalizer
from services.frontend.segmentation.caller_limit import cut_evenly
from services.frontend.segmentation.language_spans import language_by_script, spans
from services.frontend.segmentation.pauses import Pause, passages
from services.frontend.segmentation.sentence_splitter import Split, Splitter, cut_to_limit, is_only_marks
from services.frontend.segmentation.text_units import LONGEST_UNIT, runs_of, units_of
from services.frontend.text.language import CHINESE, ENGLISH
from services.frontend.text.text_scheduler import yield_turn
from services.frontend.text.text_warnings import WarningLog
from services.frontend.tokenizers.tokenizer import IncrementalEncoder, Tokenizer

RUN_CHARACTERS = 200
"""Characters normalised at a time. This takes at most 0.04 s, during which the scheduler may switch
callers several times (`text_scheduler`).
"""
NO_DICTIONARY = Dictionary({}, None, MOST_OF_A_SERVER)


class Analyzer:
    """Normalises, splits and tokenises; holds no request state.

    allow_special: parse `<|...|>` control tokens in every text (the reference does); otherwise only
    where a reading allows it, and elsewhere they are neither parsed nor spoken. dictionary: the
    server's pronunciations. split: how whole texts are split; a normaliser in reference mode always
    joins.

    Texts of up to 200 characters are processed according to compatibility specification section 2.1
    with its faults corrected (docs/text.md lists them). Longer texts are normalised in runs of
    whole sentences, so that the first sentence does not wait for the last and no call holds the GIL
    for long; only a text of 200 characters without a sentence end is cut at a blank or comma. A
    normaliser in reference mode receives the whole text unchanged.
    """

    def __init__(
        self,
        normalizer: Normalizer,
        tokenizer: Tokenizer,
        *,
        allow_special: bool = False,
        dictionary: Dictionary = NO_DICTIONARY,
        split: Split = Split.JOINED,
    ) -> None:
        self._normalizer = normalizer
        self.tokenizer = tokenizer
        self._split = Split.JOINED if normalizer.reference else split
        self._config = AnalyzerConfig(tokenizer, allow_special, dictionary, normalizer.reference)

    def reading(
        self,
        language_code: str,
        *,
        allow_control_tokens: bool,
        pronunciations: dict[str, str],
        joined: bool = False,
        own_readings: bool = True,
        most_characters: int = 0,
        speed: float = 1.0,
    ) -> Reading:
        """Combine the options of a request with the server's pronunciations; the request's take
        precedence. Raises InvalidRequest naming an invalid pronunciation.
        """
        return Reading(
            language_code,
            allow_control_tokens,
            self._config.dictionary.with_request(
                pronunciations, self.tokenizer.is_phonemes, self.tokenizer.pronunciation_marks
            ),
            joined,
            own_readings,
            most_characters,
            speed,
            WarningLog(),
        )

    def parts(
        self, text: str, reading: Reading = DEFAULT_READING, context: ReadingContext | None = None
    ) -> "Iterator[Sentence | Pause]":
        """Yield the sentences and pauses of `text` in order. context: the context of the text that
        this unit belongs to. None: `text` is whole; a passage without letters is then read in the
        language of the previous passage, else in that of the text.

        Raises InvalidRequest for a pause outside its range (before anything is yielded), for an
        invalid language code, and for pronunciations that make the text too long.
        """
        items = list(passages(text))
        if context is None:
            words = [passage for passage in items if isinstance(passage, str)]
            context = ReadingContext(language_by_script(" ".join(words)) if len(words) > 1 else "")
        for passage in items:
            if isinstance(passage, Pause):
                yield passage
            else:
                yield from self.sentences(passage, reading.language_code, reading, context)

    def sentences(
        self,
        text: str,
        language_code: str = "",
        reading: Reading = DEFAULT_READING,
        context: ReadingContext | None = None,
    ) -> Iterator[Sentence]:
        """Yield the sentences of `text` in order, each as soon as it is complete. Text that holds
        only punctuation and emoji, or that the tokenizer cannot express (another script, for a
        model of English phonemes), yields none. context: the context of the text that this is a
        part of.

        Raises InvalidRequest when `language_code` is neither empty nor a BCP-47 tag, and for
        pronunciations that make the text too long.
        """
        prepared = PreparedText(self._config, text, language_code, reading, context or ReadingContext())
        joined, most = reading.joined or self._split is Split.JOINED, reading.most_characters
        for segment in self._segments(prepared, joined=joined, most_characters=most):
            begun = False
            for part, begins in self._parts(segment, prepared, most):
                yield_turn()
                ids = prepared.encode(part)
                if ids:
                    words = self.tokenizer.spoken_words(
                        self.tokenizer.marks.for_tokenizer(part, prepared.phonemes),
                        allow_special=prepared.allow_special,
                    )
                    yield Sentence(
                        self.tokenizer.marks.for_reader(part, prepared.phonemes),
                        tuple(ids),
                        prepared.language,
                        tuple(words),
                        continues=begun and begins,
                    )
                    begun = True

    def _parts(self, segment: str, prepared: PreparedText, most_characters: int) -> Iterator[tuple[str, bool]]:
        """A segment cut to the limits of the caller and of the model. Each part comes with whether
        the caller's limit begins it.
        """
        for limited in cut_evenly(segment, most_characters):
            # A part that the caller's limit leaves may be nothing but marks, which is no speech.
            if not most_characters or not is_only_marks(self.tokenizer.marks.for_tokenizer(limited, prepared.phonemes)):
                for place, part in enumerate(cut_to_limit(limited, LONGEST_SENTENCE, prepared.length)):
                    yield part, not place

    def partial(self, reading: Reading, context: ReadingContext) -> IncrementalSentences:
        """Return the incremental sentences of one text that is still being written. With an empty
        language code the language is chosen run by run. context: the context of that text.
        """

        def spoken(run: str, before: str, last: bool) -> tuple[str, str]:
            prepared = PreparedText(
                self._config, run, reading.language_code, reading, context, whole_unit=last and not before
            )
            text = prepared.text if prepared.as_is else "".join(self._run(prepared.text, prepared, before, last=last))
            prepared.note(text, dropped=False)
            return self.tokenizer.marks.for_tokenizer(text, prepared.phonemes), prepared.language

        allow_special = self._config.allow_special or reading.allow_control_tokens
        dictionary = reading.dictionary or self._config.dictionary

        def encoder_factory() -> IncrementalEncoder:
            context.begin_unit()
            return self.tokenizer.incremental_encoder(allow_special=allow_special)

        return IncrementalSentences(spoken, encoder_factory, lambda text: dictionary.has_begun(text) or has_begun(text))

    def segments(self, text: str, language_code: str = "") -> Iterator[str]:
        """Yield the normalised and split text (the specification's split mode) before segments are
        cut to the model's limit.
        """
        prepared = PreparedText(self._config, text, language_code, DEFAULT_READING, ReadingContext())
        return (
            self.tokenizer.marks.for_reader(segment, prepared.phonemes)
            for segment in self._segments(prepared, joined=self._split is Split.JOINED)
        )

    def normalise(self, text: str, language_code: str = "") -> str:
        """Return the normalised text as a whole (the specification's no-split mode, used for prompt
        transcripts). No dictionary is applied.
        """
        prepared = PreparedText(self._config, text, language_code, Reading(dictionary=NO_DICTIONARY), ReadingContext())
        if prepared.as_is:
            return prepared.text
        return self.tokenizer.marks.for_reader("".join(self._runs(prepared.text, prepared)), prepared.phonemes)

    def _segments(self, prepared: PreparedText, *, joined: bool, most_characters: int = 0) -> Iterator[str]:
        if prepared.as_is or (self._config.reference and not prepared.text):
            yield from [prepared.text] if self._config.reference else self._speakable(iter([prepared.text]), prepared)
            return
        # A single unit is cut only when it is too long for one sentence, as in `StreamingText`. A
        # comma at its end separates repeated words.
        for text in (
            [prepared.text]
            if joined
            else (unit.rstrip().removesuffix(",") for unit in units_of(prepared.text, LONGEST_UNIT))
        ):
            splitter = Splitter(
                prepared.language,
                prepared.length if self._config.reference else prepared.length_of_start,
                most_characters,
            )
            for run in self._runs(text, prepared):
                yield from self._speakable(splitter.feed(run), prepared)
            yield from self._speakable(splitter.finish(), prepared)

    def _runs(self, text: str, prepared: PreparedText) -> Iterator[str]:
        text = text.strip()
        runs = [text] if self._config.reference else list(runs_of(text, RUN_CHARACTERS))
        before = ""
        for index, run in enumerate(runs):
            yield_turn()
            yield from self._run(run, prepared, before, last=index == len(runs) - 1)
            before = run[-1:]

    def _run(self, run: str, prepared: PreparedText, before: str, *, last: bool) -> Iterator[str]:
        """Normalise each span of one script in its own language."""
        language = prepared.language
        if self._config.reference or language not in (CHINESE, ENGLISH):
            yield self._normalizer.normalise(run, language, before=before, last=last)
            return
        language_spans = spans(run, language, self.tokenizer.languages)
        for span, following in zip(language_spans, [*language_spans[1:], None], strict=True):
            spoken = self._normalizer.normalise(
                span.text,
                span.language,
                before=before,
                last=last and following is None,
                own_readings=prepared.own_readings,
            )
            # The Chinese rule for blanks also applies between two scripts.
            meets_chinese = language == CHINESE and following is not None and following.language == CHINESE
            yield spoken.rstrip(" ") if meets_chinese else spoken
            before = span.text[-1:]

    def _speakable(self, segments: Iterator[str], prepared: PreparedText) -> Iterator[str]:
        for segment in segments:
            dropped = is_only_marks(
                self.tokenizer.marks.for_tokenizer(segment, prepared.phonemes), reference=self._config.reference
            )
            prepared.note(segment, dropped=dropped)
            if not dropped:
                yield segment
