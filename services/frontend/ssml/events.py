"""The events that an SSML document is parsed into, in its order, and which of its sentences
continue the previous one.
"""

from typing import NamedTuple

from services.frontend.segmentation.pauses import Pause
from services.frontend.text.text_warnings import Kind


class Style(NamedTuple):
    """How a span of text is read."""

    rate: float = 1.0
    """Factor on the speed of the request."""
    language: str = ""
    """BCP-47 tag of the nearest `xml:lang`; empty: that of the request."""


class SpokenText(NamedTuple):
    """Text in any fragmentation; its placeholders represent inserted items (`replacements`)."""

    text: str


class Boundary(NamedTuple):
    """A sentence ends here and `style` applies from here on. style_only: only the style changes, so
    the sentence may continue.
    """

    style: Style
    style_only: bool


class Notice(NamedTuple):
    """A warning about the document at this position."""

    kind: Kind
    message: str
    left_out: tuple[str, ...] = ()


Event = SpokenText | Pause | Boundary | Notice
_ENDS = frozenset(".?!;:…。？！；：")


class ContinuationTracker:
    """Decides which sentences continue the previous one: those after a boundary that only changes
    the style, if the text before it does not end with a punctuation mark of `_ENDS`. The caller
    reports the contents of a document in order, and the start of each sentence.
    """

    def __init__(self) -> None:
        self._last = ""
        self._continues = False

    def add_text(self, text: str) -> None:
        """Report text, in any fragmentation."""
        self._last = text.rstrip()[-1:] or self._last

    def add_boundary(self, boundary: Boundary) -> None:
        """Report a boundary. Unless it only changes the style, it separates like a pause."""
        if not boundary.style_only:
            self.add_pause()
        elif self._last and self._last not in _ENDS:
            self._continues = True

    def add_pause(self) -> None:
        """Report a pause of the document, such as `<break>`: the next sentence does not continue
        the previous one, and a boundary after the pause ignores the text before it.
        """
        self._last, self._continues = "", False

    def add_text_pause(self) -> None:
        """Report a pause inside the text: the next sentence does not continue the
        previous one. A boundary after it still considers the text before it.
        """
        self._continues = False

    def begin_sentence(self) -> bool:
        """Start a sentence; returns whether it continues the previous one."""
        continues, self._continues = self._continues, False
        return continues
