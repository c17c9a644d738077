"""A text that is still being written; its first characters decide whether it is plain or an SSML
document.
"""

from collections.abc import Iterator

from services.frontend.analysis.analyzer import Analyzer
from services.frontend.analysis.prepared_text import Reading
from services.frontend.analysis.streaming import Piece, StreamingSsml, StreamingText
from services.frontend.segmentation.text_units import Units
from services.frontend.ssml.reader import begins_document


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
        self._analyzer, self._reading, self._longest = analyzer, reading, longest_unit
        self._partial, self._last_language = partial, last_language
        self._undecided = ""
        self._form: StreamingText | StreamingSsml | None = None
        if goes_on:
            self._form = self._plain()

    @property
    def is_document(self) -> bool:
        """Whether it is known to be an SSML document. Nothing of a document is settled before its
        end.
        """
        return isinstance(self._form, StreamingSsml)

    @property
    def settled(self) -> int:
        """As StreamingText.settled."""
        return self._form.settled if isinstance(self._form, StreamingText) else 0

    @property
    def unsettled_sentences(self) -> int:
        """As StreamingText.unsettled_sentences, for plain text."""
        return self._form.unsettled_sentences if isinstance(self._form, StreamingText) else 0

    @property
    def last_language(self) -> str:
        """As StreamingText.last_language."""
        return self._form.last_language if isinstance(self._form, StreamingText) else self._last_language

    def feed(self, fragment: str) -> Iterator[Piece]:
        if self._form is None:
            self._undecided += fragment
            is_document = begins_document(self._undecided)
            if is_document is None:
                return
            self._form, fragment = self._decided(is_document), self._undecided
        yield from self._form.feed(fragment)

    def flush(self, least_words: int) -> Iterator[Piece]:
        """Text that may still begin a document is not flushed."""
        if self._form is not None:
            yield from self._form.flush(least_words)

    def finish(self) -> Iterator[Piece]:
        if self._form is None:
            self._form = self._plain()
            yield from self._form.feed(self._undecided)
        yield from self._form.finish()

    def _decided(self, is_document: bool) -> StreamingText | StreamingSsml:
        if is_document:
            return StreamingSsml(self._analyzer, self._reading, self._longest, partial=self._partial)
        return self._plain()

    def _plain(self) -> StreamingText:
        return StreamingText(
            self._analyzer,
            self._reading,
            Units(self._longest),
            partial=self._partial,
            last_language=self._last_language,
        )
