"""A text while it is being written: fragments and flushes in, sentences and pauses out, sentences
whole or in parts.
"""

from collections.abc import Iterable, Iterator

from services.frontend.analysis.analyzer import Analyzer, Sentence
from services.frontend.analysis.incremental_sentences import Part
from services.frontend.analysis.reading import Reading
from services.frontend.analysis.reading_context import Course
from services.frontend.segmentation.pauses import Pause
from services.frontend.segmentation.text_units import Units

Piece = Sentence | Part | Pause


class WrittenText:
    """One text. Everything that `feed`, `flush` and `finish` give has to be taken before the next
    of them is called.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        reading: Reading,
        units: Units,
        *,
        partial: bool,
        last_language: str = "",
        course: Course | None = None,
    ) -> None:
        """partial: give the ids of a sentence as soon as they are certain, not its whole when it is
        complete; last_language: of an earlier call that this one goes on from. course: of the
        document that this is a part of."""
        self._analyzer, self._reading, self._units = analyzer, reading, units
        self._course = course or Course(last_language, by_run=partial)
        self._partial = analyzer.partial(reading, self._course) if partial else None
        self.last_language = last_language
        """In which the complete units were read last (`Course.language`)."""
        self.settled = 0
        """Characters in complete units: what comes behind them does not depend on them."""

    @property
    def unsettled_sentences(self) -> int:
        """Sentences given in whole that stand behind the settled characters."""
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
                yield from self._analyzer.parts(unit, self._reading, self._course)
            else:
                yield from self._partial.finish(unit)
            self.settled += len(unit)
            self.last_language = self._course.language
