"""A text that is still being written: fragments and flushes in, pauses and whole or partial
sentences out.
"""

from collections.abc import Iterable, Iterator

from services.frontend.analysis.analyzer import Analyzer, Sentence
from services.frontend.analysis.incremental_sentences import SentencePart
from services.frontend.analysis.prepared_text import Reading
from services.frontend.analysis.reading_context import ReadingContext
from services.frontend.segmentation.pauses import Pause
from services.frontend.segmentation.text_units import Units

Piece = Sentence | SentencePart | Pause


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
