"""Which sentences go on in mid-sentence: those behind a border where only the style changes and the
text in front has not ended.
"""

from services.frontend.ssml.events import Border

_ENDS = frozenset(".?!;:…。？！；：")


class Joints:
    """Told of what stands in a document, in order."""

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
        """Nothing behind this goes on with what stands in front."""
        self._last, self._joined = "", False

    def text_pause(self) -> None:
        """A pause that is written in the text."""
        self._joined = False

    def sentence(self) -> bool:
        """A sentence begins; whether it goes on in mid-sentence."""
        joined, self._joined = self._joined, False
        return joined
