"""What the reading of one text carries from each part of it to the next."""

from dataclasses import dataclass

from cosyserve.errors import InvalidRequest

MOST_RESPELT = 40_000
"""Characters that a text may grow to by its replacements, unless it has more than half as many
without them.
"""
MOST_OF_A_UNIT = 4_000
"""Characters that one unit (`text_units`) may grow to where it is read run by run, in time that
grows with their square.
"""


@dataclass
class Course:
    """Of one text; a text that goes on in another call begins there with the language and nothing
    else.
    """

    language: str = ""
    """In which the letters that came last were read ("zh", "en", "ja", "ko", "und"): what has none
    is read in it. Empty: none came.
    """
    by_run: bool = False
    """Units are read run by run: each is begun with `begin_unit`."""
    _written: int = 0
    _respelt: int = 0
    _unit: int = 0

    def begin_unit(self) -> None:
        """A unit begins."""
        self._unit = 0

    def respell(self, written: int, respelt: int) -> None:
        """Take note of `written` characters that replacements made `respelt` characters of,
        phonemes counted as they are written.

        Raises InvalidRequest when the text, or its unit by run, has become too long by then.
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
