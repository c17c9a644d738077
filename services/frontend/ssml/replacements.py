"""Elements whose text is replaced by something else: `sub`, `say-as`, `phoneme`.

Phonemes, and values that are read according to their kind, are inserted: each is one private-use
character in the text (`placeholders`) until the language around it is known, so that no rule for
written text applies to it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.frontend.ssml.elements import LONGEST_CONTENT, quoted
from services.frontend.ssml.events import Notice
from services.frontend.ssml.say_as.values import KINDS, Value, value_of
from services.frontend.text.characters import speakable
from services.frontend.text.language import CHINESE, ENGLISH
from services.frontend.text.text_warnings import Kind
from services.frontend.tokenizers.inpainting.pronunciation import CMU, IPA, PINYIN, PronunciationMarks
from services.frontend.tokenizers.phonemes.symbols import misaki_of
from services.frontend.tokenizers.placeholders import INSERTED, place_of

_LETTER = re.compile("(?P<han>[\u3400-\u9fff\U00020000-\U0003ffff])|[A-Za-z\u00c0-\u024f]")
_AROUND = re.compile(f"({INSERTED.pattern})")
_NEAR = 200
"""Characters around an inserted value that are searched for its language."""


@dataclass(frozen=True)
class Phonemes:
    """Phonemes of the model's alphabet, words separated by single blanks."""

    phonemes: str


Inserted = Phonemes | Value
IsPhonemes = Callable[[str], bool] | None
"""Whether the model has all phonemes of a word; None for a model that reads text."""
Replacement = str | Inserted | Notice
"""Other text, an inserted item, or a warning: then the text is read as it is written."""


def with_inserted(
    text: str, inserted: Sequence[Inserted], language: str, placeholder: Callable[[str], str], *, phonemes: bool
) -> str:
    """`text` with words, or placeholders of phonemes, in place of the inserted items.

    language: of the whole text. A value is read in it unless it is Chinese or English; then the
    letter before the value decides, or the one after it where there is none before. placeholder:
    returns the placeholder character of phonemes. phonemes: whether the model reads phonemes.
    """

    def put(match: re.Match[str]) -> str:
        item = inserted[place_of(match[0])]
        if isinstance(item, Phonemes):
            return placeholder(item.phonemes)
        before, after = text[max(0, match.start() - _NEAR) : match.start()], text[match.end() : match.end() + _NEAR]
        near = _language_near(before, after, language)
        words = item.words(near, placeholder if phonemes else None)
        if near == CHINESE:
            return words
        return _gap(before[-1:], words[:1]) + words + _gap(words[-1:], after[:1])

    return INSERTED.sub(put, text)


def speakable_around(text: str) -> str:
    """`characters.speakable` applied to `text` without changing its placeholders."""
    return "".join(part if INSERTED.fullmatch(part) else speakable(part) for part in _AROUND.split(text))


def _language_near(before: str, after: str, language: str) -> str:
    if language not in (CHINESE, ENGLISH):
        return language
    nearest = next(iter([*reversed(list(_LETTER.finditer(before))), *_LETTER.finditer(after)]), None)
    return language if nearest is None else CHINESE if nearest["han"] else ENGLISH


def _gap(left: str, right: str) -> str:
    return " " if left.isalnum() and right.isalnum() else ""


_ALPHABETS = {
    "ipa": IPA,
    **dict.fromkeys(("cmu-arpabet", "x-arpabet", "arpabet", "cmu"), CMU),
    **dict.fromkeys(("pinyin", "x-pinyin", "x-amazon-pinyin"), PINYIN),
}
"""Values of `alphabet`, for a model that has marks for pronunciations."""


def replacement_of(
    name: str,
    attributes: Mapping[str, str],
    content: str,
    is_phonemes: IsPhonemes,
    marks: PronunciationMarks | None = None,
) -> Replacement:
    """The replacement of `content` in element `name` of elements.TEXT_ALONE. marks: how a model
    that reads text takes pronunciations; None if it takes none. Raises ValueError with the problem
    of an invalid element.
    """
    if len(content) > LONGEST_CONTENT:
        raise ValueError(f"it holds {len(content)} characters of text, allowed are at most {LONGEST_CONTENT}")
    if name == "sub":
        return _required(attributes, "alias")
    return _value(attributes, content) if name == "say-as" else _sound(attributes, is_phonemes, marks)


def require(name: str, attributes: Mapping[str, str]) -> None:
    """Raise ValueError when the start tag of such an element lacks its attribute."""
    _required(attributes, {"sub": "alias", "say-as": "interpret-as", "phoneme": "ph"}[name])


def _value(attributes: Mapping[str, str], content: str) -> Replacement:
    named = _required(attributes, "interpret-as")
    kind, written = KINDS.get(named.strip().lower()), " ".join(content.split())
    if kind is None:
        message = f"say-as supports {', '.join(KINDS)}; the text inside others is read as it is written"
        return Notice(Kind.UNSUPPORTED_MARKUP, message, (f"say-as {named}",))
    message = f"say-as: its content is not a {kind} in a supported form; it is read as it is written"
    value = value_of(kind, attributes.get("format", ""), written)
    return value or Notice(Kind.UNSUPPORTED_MARKUP, message, (written,))


def _sound(attributes: Mapping[str, str], is_phonemes: IsPhonemes, marks: PronunciationMarks | None) -> Replacement:
    ph, alphabet = _required(attributes, "ph"), attributes.get("alphabet", "ipa").strip().lower()
    if marks is not None:
        if alphabet in _ALPHABETS:
            return marks.of(_ALPHABETS[alphabet], ph)
        message = f"phoneme: the supported alphabets are {', '.join(_ALPHABETS)}; the text inside others is read"
        return Notice(Kind.UNUSABLE_PRONUNCIATION, message, (f"{alphabet} {ph}",))
    if is_phonemes is None:
        message = "phoneme: this model reads text, so it cannot use phonemes; the text inside is read"
        return Notice(Kind.UNUSABLE_PRONUNCIATION, message, (ph,))
    if alphabet not in ("ipa", "misaki"):
        message = "phoneme: the supported alphabets are ipa and misaki; the text inside others is read"
        return Notice(Kind.UNUSABLE_PRONUNCIATION, message, (f"{alphabet} {ph}",))
    words = misaki_of(ph) if alphabet == "ipa" else " ".join(ph.strip(" /").split())
    wrong = next((word for word in words.split(" ") if not is_phonemes(word)), None)
    if wrong is not None:
        raise ValueError(f"ph is {quoted(ph)}, of which {quoted(wrong)} is no word in phonemes of this model")
    return Phonemes(words)


def _required(attributes: Mapping[str, str], name: str) -> str:
    value = attributes.get(name, "")
    if not value.strip():
        raise ValueError(f"{name} is missing or empty")
    if len(value) > LONGEST_CONTENT:
        raise ValueError(f"{name} has {len(value)} characters, allowed are 1 to {LONGEST_CONTENT}")
    return value
