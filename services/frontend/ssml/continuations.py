"""Which sentences continue the previous one: those after a boundary that only changes the style,
where the preceding text has not ended.
"""

from services.frontend.ssml.events import Border

_ENDS = frozenset(".?!;:…。？！；：")


class Joints:
    """Receives the contents of a document in order."""

    def __init__(self) -> None:
        self._last = ""
        self._joined = False

    def said(self, text: str) -> None:
        self._last = text.rstrip()[-1:] or self._last

    def border(self, border: Border) -> None:
        if not border.joint:
            self.pause()
        elif self._last and self._last not in _ENDS:
            self._joined = True

    def pause(self) -> None:
        """Sentences after this do not continue those before."""
        self._last, self._joined = "", False

    def text_pause(self) -> None:
        """A pause that is part of the text."""
        self._joined = False

    def sentence(self) -> bool:
        """Start a sentence; returns whether it continues the previous one."""
        joined, self._joined = self._joined, False
        return joined
