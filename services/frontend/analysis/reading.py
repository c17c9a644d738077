"""The options with which the text of a request is read."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.frontend.analysis.pronunciations import Dictionary
from services.frontend.ssml.replacements import Inserted
from services.frontend.text.text_warnings import WarningLog


@dataclass(frozen=True)
class Reading:
    """The options with which the text of a request is read."""

    language_code: str = ""
    """BCP-47 tag, or empty to choose by script."""
    allow_control_tokens: bool = False
    """Parse `<|...|>` control tokens. A text that has them is then not normalised, according to the
    specification.
    """
    dictionary: Dictionary | None = None
    """The pronunciations of the server and the request; None: the server's."""
    joined: bool = False
    """Join short sentences regardless of the model directory (Split.JOINED)."""
    own_readings: bool = True
    """As in `Normalizer.normalise`."""
    speed: float = 1.0
    """Speed of the request, multiplied by the rates of an SSML document."""
    log: WarningLog | None = None
    """Receives a warning for text that is not spoken as it is written; None: warnings are dropped.
    """
    inserted: Sequence[Inserted] | None = None
    """What the placeholders of an SSML document represent; None: the text is plain."""


DEFAULT_READING = Reading()
