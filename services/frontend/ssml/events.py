"""The events that an SSML document is parsed into, in its order."""

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
    """Text in any fragmentation; its placeholders represent inserted items (`inserted`)."""

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
