"""The text of a call, plain or an SSML document: whole, or still being written, with fragments and
flushes in and pauses and whole or partial sentences out. Its first characters decide which it is.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from services.frontend.analysis.analyzer import Analyzer
from services.frontend.analysis.incremental_sentences import Sentence
from services.frontend.analysis.prepared_text import Reading
from services.frontend.analysis.reading_context import ReadingContext
from services.frontend.segmentation.language_spans import language_by_script
from services.frontend.segmentation.pauses import Pause
from services.frontend.segmentation.text_units import Units
from services.frontend.ssml.events import Boundary, ContinuationTracker, Event, Notice, SpokenText, Style
from services.frontend.ssml.reader import Reader, begins_document, is_document

Piece = Sentence | Pause


class StreamingText:
    """One text. The iterator of `feed`, `flush` or `finish` must be exhausted before the next
    call.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        reading: Reading,
        units: Units,
        *,
        partial: bool,
        last_language: str = "",
        context: ReadingContext | None = None,
    ) -> None:
        """partial: yield the ids of a sentence as soon as they are final, instead of whole
        sentences; last_language: that of the earlier call that this one continues. context: the
        context of the document that this is a part of.
        """
        self._analyzer, self._reading, self._units = analyzer, reading, units
        self._context = context or ReadingContext(last_language, by_run=partial)
        self._partial = analyzer.partial(reading, self._context) if partial else None
        self.last_language = last_language
        """Language of the last complete unit (`ReadingContext.language`)."""
        self.settled = 0
        """Characters in complete units: later sentences do not depend on them."""

    @property
    def unsettled_sentences(self) -> int:
        """Complete sentences that were yielded after the settled characters."""
        return 0 if self._partial is None else self._partial.ended

    def feed(self, fragment: str) -> Iterator[Piece]:
        yield from self._complete(self._units.feed(fragment))
        if self._partial is not None:
            yield from self._partial.feed(self._units.waiting)

    def flush(self, least_words: int) -> Iterator[Piece]:
        """least_words: as AnalyzeFlush of frontend.proto."""
        yield from self._complete([self._units.finish_words(least_words) if least_words else self._units.finish()])

    def finish(self) -> Iterator[Piece]:
        yield from self._complete([self._units.finish()])

    def _complete(self, units: Iterable[str]) -> Iterator[Piece]:
        for unit in units:
            if not unit:
                continue
            if self._partial is None:
                yield from self._analyzer.parts(unit, self._reading, self._context)
            else:
                yield from self._partial.finish(unit)
            self.settled += len(unit)
            self.last_language = self._context.language


class WholeUnits(Units):
    """Each fragment is a unit."""

    def feed(self, fragment: str) -> Iterator[str]:
        yield fragment


class StreamingSsml:
    """One document; as StreamingText. Its text is cut into units like plain text, and at each
    boundary of the document. Nothing of it is settled before its end, because the reading of the
    rest depends on the open elements.
    """

    def __init__(self, analyzer: Analyzer, reading: Reading, units: Callable[[], Units], *, partial: bool) -> None:
        self._reader = Reader(reading.speed, analyzer.tokenizer.is_phonemes, analyzer.tokenizer.pronunciation_marks)
        self._analyzer, self._units, self._partial = analyzer, units, partial
        self._reading = replace(reading, inserted=self._reader.inserted)
        self._language_code = reading.language_code
        self._context = ReadingContext(by_run=partial)
        self._continuations, self._style = ContinuationTracker(), Style()
        self._begin_text()

    def whole(self, document: str) -> Iterator[Piece]:
        """The sentences and pauses of a complete document. It is parsed to its end first, so that a
        malformed one is refused before any of it is spoken.
        """
        events = _joined([*self._reader.feed(document), *self._reader.finish()])
        spoken = " ".join(event.text for event in events if isinstance(event, SpokenText))
        self._context.language = language_by_script(spoken)
        yield from self._read(events)

    def feed(self, fragment: str) -> Iterator[Piece]:
        yield from self._read(self._reader.feed(fragment))

    def flush(self, least_words: int) -> Iterator[Piece]:
        """least_words: as AnalyzeFlush of frontend.proto. An incomplete tag is not flushed."""
        yield from self._styled(self._text.flush(least_words))

    def finish(self) -> Iterator[Piece]:
        yield from self._read(self._reader.finish())
        yield from self._styled(self._text.finish())

    def _begin_text(self) -> None:
        self._text = StreamingText(
            self._analyzer, self._reading, self._units(), partial=self._partial, context=self._context
        )

    def _read(self, events: Iterable[Event]) -> Iterator[Piece]:
        for event in events:
            if isinstance(event, SpokenText):
                # Recorded before the feed: the sentences that the text completes precede any
                # later boundary.
                self._continuations.add_text(event.text)
                yield from self._styled(self._text.feed(event.text))
            elif isinstance(event, Notice):
                if self._reading.log is not None:
                    self._reading.log.add(*event)
            else:
                yield from self._styled(self._text.finish())
                if isinstance(event, Boundary):
                    self._change(event)
                else:
                    self._continuations.add_pause()
                    yield event

    def _change(self, boundary: Boundary) -> None:
        self._continuations.add_boundary(boundary)
        if boundary.style.language != self._style.language:
            self._reading = replace(self._reading, language_code=boundary.style.language or self._language_code)
            self._begin_text()
        self._style = boundary.style

    def _styled(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            if isinstance(piece, Pause):
                self._continuations.add_text_pause()
                yield piece
            else:
                # Only the first part of a sentence says whether it continues; a part without ids
                # belongs to the sentence before.
                continues = bool(piece.token_ids) and self._continuations.begin_sentence()
                yield replace(piece, rate=self._style.rate, continues=continues or piece.continues)


def _joined(events: Iterable[Event]) -> list[Event]:
    """`events` with adjacent text merged and the notices inside that text before it."""
    merged, text = list[Event](), ""
    for event in events:
        if isinstance(event, SpokenText):
            text += event.text
        elif isinstance(event, Notice):
            merged.append(event)
        else:
            merged += [SpokenText(text), event] if text else [event]
            text = ""
    return [*merged, SpokenText(text)] if text else merged


def parts_of(analyzer: Analyzer, text: str, reading: Reading) -> Iterator[Piece]:
    """The sentences and pauses of a whole text in order: `Analyzer.parts`, or a document's.

    Raises InvalidRequest also for a document that is malformed or has a value out of range, with
    its position.
    """
    if is_document(text):
        units = functools.partial(WholeUnits, len(text))
        yield from StreamingSsml(analyzer, reading, units, partial=False).whole(text)
    else:
        yield from analyzer.parts(text, reading)


class StreamingInput:
    """One text; as StreamingText. Nothing is read until it is known whether the text is a document,
    which takes at most a few blanks and the name of a tag.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        reading: Reading,
        longest_unit: int,
        *,
        partial: bool,
        last_language: str = "",
        goes_on: bool = False,
    ) -> None:
        """longest_unit: characters. goes_on: the text continues an earlier call, so it is plain.
        Others: as in StreamingText.
        """
        self.plain = StreamingText(analyzer, reading, Units(longest_unit), partial=partial, last_language=last_language)
        """The text unless it is a document."""
        units = functools.partial(Units, longest_unit)
        self._document = functools.partial(StreamingSsml, analyzer, reading, units, partial=partial)
        self._undecided = ""
        self._form: StreamingText | StreamingSsml | None = self.plain if goes_on else None

    @property
    def is_document(self) -> bool:
        """Whether it is known to be an SSML document. Nothing of a document is settled before its
        end.
        """
        return isinstance(self._form, StreamingSsml)

    def feed(self, fragment: str) -> Iterator[Piece]:
        if self._form is None:
            self._undecided += fragment
            is_document = begins_document(self._undecided)
            if is_document is None:
                return
            self._form, fragment = self._document() if is_document else self.plain, self._undecided
        yield from self._form.feed(fragment)

    def flush(self, least_words: int) -> Iterator[Piece]:
        """Text that may still begin a document is not flushed."""
        if self._form is not None:
            yield from self._form.flush(least_words)

    def finish(self) -> Iterator[Piece]:
        if self._form is None:
            self._form = self.plain
            yield from self._form.feed(self._undecided)
        yield from self._form.finish()
