"""An SSML document that is still being written: fragments and flushes in, pauses and whole or
partial sentences out.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from services.frontend.analysis.analyzer import Analyzer, Sentence
from services.frontend.analysis.incremental_sentences import SentencePart
from services.frontend.analysis.prepared_text import Reading
from services.frontend.analysis.reading_context import ReadingContext
from services.frontend.analysis.streaming import Piece, StreamingText
from services.frontend.segmentation.pauses import Pause
from services.frontend.segmentation.text_units import Units
from services.frontend.ssml.events import Boundary, ContinuationTracker, Event, Notice, SpokenText, Style
from services.frontend.ssml.reader import Reader


class StreamingSsml:
    """One document; as StreamingText. Its text is cut into units like plain text, and at each
    boundary of the document. Nothing of it is settled before its end, because the reading of the
    rest depends on the open elements.
    """

    def __init__(self, analyzer: Analyzer, reading: Reading, longest_unit: int, *, partial: bool) -> None:
        self._reader = Reader(reading.speed, analyzer.tokenizer.is_phonemes)
        self._analyzer, self._longest, self._partial = analyzer, longest_unit, partial
        self._reading = replace(reading, inserted=self._reader.inserted)
        self._language_code = reading.language_code
        self._context = ReadingContext(by_run=partial)
        self._continuations, self._style = ContinuationTracker(), Style()
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
        self._text = StreamingText(
            self._analyzer, self._reading, Units(self._longest), partial=self._partial, context=self._context
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
            elif isinstance(piece, Sentence):
                yield replace(piece, rate=self._style.rate, continues=self._continuations.begin_sentence())
            else:
                yield self._part(piece)

    def _part(self, part: SentencePart) -> SentencePart:
        """Only the first part of a sentence says whether it continues; a part without ids belongs
        to the sentence before.
        """
        return replace(
            part, rate=self._style.rate, continues=bool(part.token_ids) and self._continuations.begin_sentence()
        )
