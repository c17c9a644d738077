"""An SSML document that is still being written: fragments and flushes in, pauses and whole or
partial sentences out.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from services.frontend.analysis.analyzer import Analyzer, Sentence
from services.frontend.analysis.incremental_sentences import Part
from services.frontend.analysis.reading import Reading
from services.frontend.analysis.reading_context import Course
from services.frontend.analysis.streaming_text import Piece, WrittenText
from services.frontend.segmentation.pauses import Pause
from services.frontend.segmentation.text_units import Units
from services.frontend.ssml.continuations import Joints
from services.frontend.ssml.events import Border, Event, Notice, Said, Style
from services.frontend.ssml.reader import Reader


class WrittenDocument:
    """One document; as WrittenText. Its text is cut into units like plain text, and at each
    boundary of the document. Nothing of it is settled before its end, because the reading of the
    rest depends on the open elements.
    """

    def __init__(self, analyzer: Analyzer, reading: Reading, longest_unit: int, *, partial: bool) -> None:
        self._reader = Reader(reading.speed, analyzer.tokenizer.is_phonemes)
        self._analyzer, self._longest, self._partial = analyzer, longest_unit, partial
        self._reading = replace(reading, inserted=self._reader.inserted)
        self._language_code = reading.language_code
        self._course = Course(by_run=partial)
        self._joints, self._style = Joints(), Style()
        self._begin_text()

    def feed(self, fragment: str) -> Iterator[Piece]:
        yield from self._read(self._reader.feed(fragment))

    def flush(self, least_words: int) -> Iterator[Piece]:
        """least_words: as AnalyzeFlush of frontend.proto. An incomplete tag is not flushed."""
        yield from self._styled(self._text.flush(least_words))

    def finish(self) -> Iterator[Piece]:
        yield from self._read(self._reader.finish())
        yield from self._styled(self._text.finish())

    def _begin_text(self) -> None:
        self._text = WrittenText(
            self._analyzer, self._reading, Units(self._longest), partial=self._partial, course=self._course
        )

    def _read(self, events: Iterable[Event]) -> Iterator[Piece]:
        for event in events:
            if isinstance(event, Said):
                # This comes before the feed: the sentences that the text completes precede any
                # later boundary.
                self._joints.said(event.text)
                yield from self._styled(self._text.feed(event.text))
            elif isinstance(event, Notice):
                if self._reading.log is not None:
                    self._reading.log.add(*event)
            else:
                yield from self._styled(self._text.finish())
                if isinstance(event, Border):
                    self._change(event)
                else:
                    self._joints.pause()
                    yield event

    def _change(self, border: Border) -> None:
        self._joints.border(border)
        if border.style.language != self._style.language:
            self._reading = replace(self._reading, language_code=border.style.language or self._language_code)
            self._begin_text()
        self._style = border.style

    def _styled(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            if isinstance(piece, Pause):
                self._joints.text_pause()
                yield piece
            elif isinstance(piece, Sentence):
                yield replace(piece, rate=self._style.rate, continues=self._joints.sentence())
            else:
                yield self._part(piece)

    def _part(self, part: Part) -> Part:
        """Only the first part of a sentence says whether it continues; a part without ids belongs
        to the sentence before.
        """
        return replace(part, rate=self._style.rate, continues=bool(part.token_ids) and self._joints.sentence())
