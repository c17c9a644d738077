"""How a request wants its text read."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.frontend.analysis.pronunciations import Dictionary
from services.frontend.ssml.inserted import Inserted
from services.frontend.text.text_warnings import WarningLog


@dataclass(frozen=True)
class Reading:
    """How a request wants its text read."""

    language_code: str = ""
    """BCP-47 tag, or empty: by script."""
    allow_control_tokens: bool = False
    """Parse `<|...|>` control tokens; a text that has them is then not normalised, as specified."""
    dictionary: Dictionary | None = None
    """The server's and the request's pronunciations; None: the server's."""
    joined: bool = False
    """Join short sentences whatever the model directory says (Split.JOINED)."""
    own_readings: bool = True
    """As in `Normalizer.normalise`."""
    speed: float = 1.0
    """Of the request; the rates of a document multiply it."""
    log: WarningLog | None = None
    """Where what is not spoken as it is written is noted; None: nowhere."""
    inserted: Sequence[Inserted] | None = None
    """Of an SSML document, what its carriers stand for; None: the text is plain."""


DEFAULT_READING = Reading()
