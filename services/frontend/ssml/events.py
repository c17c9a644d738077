"""What an SSML document comes down to, in its order."""

from typing import NamedTuple

from services.frontend.segmentation.pauses import Pause
from services.frontend.text.text_warnings import Kind


class Style(NamedTuple):
    """How a stretch of text is read."""

    rate: float = 1.0
    """Multiplies the speed of the request."""
    language: str = ""
    """BCP-47 tag of the nearest `xml:lang`; empty: as the request says."""


class Said(NamedTuple):
    """Text, any cutting of it; carriers in it stand for what was inserted (`inserted`)."""

    text: str


class Border(NamedTuple):
    """A sentence ends here, and style holds from here on. joint: only the style changes, so what
    follows may go on in mid-sentence.
    """

    style: Style
    joint: bool


class Notice(NamedTuple):
    """A warning about what stands here."""

    kind: Kind
    message: str
    left_out: tuple[str, ...] = ()


Event = Said | Pause | Border | Notice
