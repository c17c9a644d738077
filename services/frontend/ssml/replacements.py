"""Elements whose text is said as something else: `sub`, `say-as`, `phoneme`.

Each function gives what is said instead, None where the text is to be read as it is written, with a
warning; it raises ValueError saying what is wrong with the element.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from services.frontend.ssml.attributes import shown
from services.frontend.ssml.elements import LONGEST_CONTENT
from services.frontend.ssml.events import Notice
from services.frontend.ssml.inserted import Inserted, Sound
from services.frontend.ssml.ipa import misaki_of
from services.frontend.ssml.say_as.values import KINDS, value_of
from services.frontend.text.text_warnings import Kind

Speaks = Callable[[str], bool] | None
"""Whether a word of phonemes is one that the model has; None for a model that reads text."""


class Replaced(NamedTuple):
    """One of text, inserted and notice is there."""

    text: str = ""
    inserted: Inserted | None = None
    notice: Notice | None = None


def replaced(name: str, attributes: Mapping[str, str], content: str, speaks: Speaks) -> Replaced:
    """What element `name` of elements.TEXT_ALONE says in the place of `content`."""
    if len(content) > LONGEST_CONTENT:
        raise ValueError(f"it holds {len(content)} characters of text, allowed are at most {LONGEST_CONTENT}")
    if name == "sub":
        return Replaced(text=_required(attributes, "alias"))
    return _value(attributes, content) if name == "say-as" else _sound(attributes, speaks)


def require(name: str, attributes: Mapping[str, str]) -> None:
    """Raise ValueError for what is wrong with the start tag of such an element."""
    _required(attributes, {"sub": "alias", "say-as": "interpret-as", "phoneme": "ph"}[name])


def _value(attributes: Mapping[str, str], content: str) -> Replaced:
    named = _required(attributes, "interpret-as")
    kind, written = KINDS.get(named.strip().lower()), " ".join(content.split())
    if kind is None:
        known = ", ".join(KINDS)
        message = f"say-as is known for {known}; the text inside others is read as it is written"
        return Replaced(notice=Notice(Kind.UNSUPPORTED_MARKUP, message, (f"say-as {named}",)))
    value = value_of(kind, attributes.get("format", ""), written)
    if value is None:
        message = f"say-as: what it holds is no {kind} of a known form; it is read as it is written"
        return Replaced(notice=Notice(Kind.UNSUPPORTED_MARKUP, message, (written,)))
    return Replaced(inserted=value)


def _sound(attributes: Mapping[str, str], speaks: Speaks) -> Replaced:
    ph, alphabet = _required(attributes, "ph"), attributes.get("alphabet", "ipa").strip().lower()
    if speaks is None:
        message = "phoneme: this model reads text, so that phonemes are of no use to it; the text inside is read"
        return Replaced(notice=Notice(Kind.UNUSABLE_PRONUNCIATION, message, (ph,)))
    if alphabet not in ("ipa", "misaki"):
        message = "phoneme: the alphabets ipa and misaki are known; the text inside others is read"
        return Replaced(notice=Notice(Kind.UNUSABLE_PRONUNCIATION, message, (f"{alphabet} {ph}",)))
    words = misaki_of(ph) if alphabet == "ipa" else " ".join(ph.strip(" /").split())
    wrong = next((word for word in words.split(" ") if not speaks(word)), None)
    if wrong is not None:
        raise ValueError(f"ph is {shown(ph)}, of which {shown(wrong)} is no word in phonemes of this model")
    return Replaced(inserted=Sound(words))


def _required(attributes: Mapping[str, str], name: str) -> str:
    value = attributes.get(name, "")
    if not value.strip():
        raise ValueError(f"{name} is missing or empty")
    if len(value) > LONGEST_CONTENT:
        raise ValueError(f"{name} has {len(value)} characters, allowed are 1 to {LONGEST_CONTENT}")
    return value
