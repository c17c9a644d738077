"""Which sentences continue the previous one: those after a boundary that only changes the style,
where the preceding text has not ended.
"""

from services.frontend.ssml.events import Boundary

_ENDS = frozenset(".?!;:…。？！；：")


class ContinuationTracker:
    """Receives the contents of a document in order."""

    def __init__(self) -> None:
        self._last = ""
        self._continues = False

    def add_text(self, text: str) -> None:
        self._last = text.rstrip()[-1:] or self._last

    def add_boundary(self, boundary: Boundary) -> None:
        if not boundary.style_only:
            self.add_pause()
        elif self._last and self._last not in _ENDS:
            self._continues = True

    def add_pause(self) -> None:
        """Sentences after this do not continue those before."""
        self._last, self._continues = "", False

    def add_text_pause(self) -> None:
        """A pause that is part of the text."""
        self._continues = False

    def begin_sentence(self) -> bool:
        """Start a sentence; returns whether it continues the previous one."""
        continues, self._continues = self._continues, False
        return continues
