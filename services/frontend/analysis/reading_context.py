"""The state that reading one part of a text passes to the next."""

from dataclasses import dataclass

from cosyserve.errors import InvalidRequest

MOST_RESPELT = 40_000
"""Characters that a text may grow to through replacements, or twice its own length if that is more.
"""
MOST_OF_A_UNIT = 4_000
"""Characters that one unit (`text_units`) may grow to where it is read run by run, in quadratic
time.
"""


@dataclass
class ReadingContext:
    """State of one text. A text that continues in another call starts there with the language and
    nothing else.
    """

    language: str = ""
    """Language of the last letters ("zh", "en", "ja", "ko", "und"), used for text without letters.
    Empty: no letters so far.
    """
    by_run: bool = False
    """Units are read run by run; each starts with `begin_unit`."""
    _written: int = 0
    _respelt: int = 0
    _unit: int = 0

    def begin_unit(self) -> None:
        """Start a new unit."""
        self._unit = 0

    def respell(self, written: int, respelt: int) -> None:
        """Count `written` characters and the `respelt` characters that replaced them, phonemes
        counted as they are written.

        Raises InvalidRequest when the text, or its unit when read run by run, has become too long.
        """
        self._written, self._respelt, self._unit = (
            self._written + written,
            self._respelt + respelt,
            self._unit + respelt,
        )
        most = max(MOST_RESPELT, 2 * self._written)
        if self._respelt > most:
            raise InvalidRequest(
                f"pronunciations and SSML make {self._respelt} characters of {self._written}, allowed are at most "
                f"{most}"
            )
        if self.by_run and self._unit > MOST_OF_A_UNIT:
            raise InvalidRequest(
                f"pronunciations and SSML make {self._unit} characters of a sentence, by token at most {MOST_OF_A_UNIT}"
            )
