"""Elements whose text is replacement_of by something else: `sub`, `say-as`, `phoneme`.

Each function returns the replacement, or a warning when the text is to be read as it is written; it
raises ValueError with the problem of an invalid element.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from services.frontend.ssml.elements import LONGEST_CONTENT, quoted
from services.frontend.ssml.events import Notice
from services.frontend.ssml.replacements import Inserted, Phonemes
from services.frontend.ssml.say_as.values import KINDS, value_of
from services.frontend.text.text_warnings import Kind
from services.frontend.tokenizers.phonemes.symbols import misaki_of

IsPhonemes = Callable[[str], bool] | None
"""Whether the model has all phonemes of a word; None for a model that reads text."""


class Replacement(NamedTuple):
    """Exactly one of text, inserted and notice is set."""

    text: str = ""
    inserted: Inserted | None = None
    notice: Notice | None = None


def replacement_of(name: str, attributes: Mapping[str, str], content: str, is_phonemes: IsPhonemes) -> Replacement:
    """The replacement of `content` in element `name` of elements.TEXT_ALONE."""
    if len(content) > LONGEST_CONTENT:
        raise ValueError(f"it holds {len(content)} characters of text, allowed are at most {LONGEST_CONTENT}")
    if name == "sub":
        return Replacement(text=_required(attributes, "alias"))
    return _value(attributes, content) if name == "say-as" else _sound(attributes, is_phonemes)


def require(name: str, attributes: Mapping[str, str]) -> None:
    """Raise ValueError when the start tag of such an element lacks its attribute."""
    _required(attributes, {"sub": "alias", "say-as": "interpret-as", "phoneme": "ph"}[name])


def _value(attributes: Mapping[str, str], content: str) -> Replacement:
    named = _required(attributes, "interpret-as")
    kind, written = KINDS.get(named.strip().lower()), " ".join(content.split())
    if kind is None:
        known = ", ".join(KINDS)
        message = f"say-as supports {known}; the text inside others is read as it is written"
        return Replacement(notice=Notice(Kind.UNSUPPORTED_MARKUP, message, (f"say-as {named}",)))
    value = value_of(kind, attributes.get("format", ""), written)
    if value is None:
        message = f"say-as: its content is not a {kind} in a supported form; it is read as it is written"
        return Replacement(notice=Notice(Kind.UNSUPPORTED_MARKUP, message, (written,)))
    return Replacement(inserted=value)


def _sound(attributes: Mapping[str, str], is_phonemes: IsPhonemes) -> Replacement:
    ph, alphabet = _required(attributes, "ph"), attributes.get("alphabet", "ipa").strip().lower()
    if is_phonemes is None:
        message = "phoneme: this model reads text, so it cannot use phonemes; the text inside is read"
        return Replacement(notice=Notice(Kind.UNUSABLE_PRONUNCIATION, message, (ph,)))
    if alphabet not in ("ipa", "misaki"):
        message = "phoneme: the supported alphabets are ipa and misaki; the text inside others is read"
        return Replacement(notice=Notice(Kind.UNUSABLE_PRONUNCIATION, message, (f"{alphabet} {ph}",)))
    words = misaki_of(ph) if alphabet == "ipa" else " ".join(ph.strip(" /").split())
    wrong = next((word for word in words.split(" ") if not is_phonemes(word)), None)
    if wrong is not None:
        raise ValueError(f"ph is {quoted(ph)}, of which {quoted(wrong)} is no word in phonemes of this model")
    return Replacement(inserted=Phonemes(words))


def _required(attributes: Mapping[str, str], name: str) -> str:
    value = attributes.get(name, "")
    if not value.strip():
        raise ValueError(f"{name} is missing or empty")
    if len(value) > LONGEST_CONTENT:
        raise ValueError(f"{name} has {len(value)} characters, allowed are 1 to {LONGEST_CONTENT}")
    return value
