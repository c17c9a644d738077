"""Parses an SSML document, in any fragmentation, into events: expat parses the XML, this class
interprets the elements.

Document types, and thus entities other than the five of XML, and CDATA are refused; depth and sizes
are limited (`elements`). The events depend on the document only, apart from where text is cut.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple
from xml.parsers import expat

import regex

from cosyserve.errors import InvalidRequest
from services.frontend.segmentation.pauses import Pause
from services.frontend.ssml import elements
from services.frontend.ssml.elements import FASTEST, SLOWEST, break_milliseconds, rate_of
from services.frontend.ssml.events import Boundary, Event, Notice, SpokenText, Style
from services.frontend.ssml.replacements import Inserted, IsPhonemes, replacement_of, require
from services.frontend.text.language import require_tag
from services.frontend.text.text_warnings import Kind
from services.frontend.tokenizers.inpainting.pronunciation import PronunciationMarks
from services.frontend.tokenizers.placeholders import inserted_placeholder

MOST_BLANKS = 400
"""Blanks before the document; with more of them the text is plain."""
_BEGINNING = regex.compile(
    rf"[\s\ufeff]{{0,{MOST_BLANKS}}}(?:<\?xml\s[^<>]{{0,200}}\?>\s{{0,{MOST_BLANKS}}})?"
    rf"(?:<speak[\s/>]|<!DOCTYPE\s{{1,9}}speak[\s>])"
)
"""A document with a document type also matches, so that the reader can refuse it with the reason.
"""
_DECLARATION = regex.compile(rf"[\s\ufeff]{{0,{MOST_BLANKS}}}(?:<\?xml\s[^<>]{{0,200}}\?>)?")


def begins_document(text: str) -> bool | None:
    """Whether a text that begins with `text` is an SSML document; None while more of it is
    needed.
    """
    match = _BEGINNING.match(text, partial=True)
    return False if match is None else None if match.partial else True


def is_document(text: str) -> bool:
    """Whether the whole of `text` is an SSML document, well-formed or not."""
    return "speak" in text and begins_document(text) is True


def without_declaration(text: str) -> str:
    """A document whose byte order mark and XML declaration are replaced by blanks: they do not
    apply to decoded text, the positions in the document stay the same, and blanks may precede it.
    """
    prologue = _DECLARATION.match(text)
    length = prologue.end() if prologue else 0
    return "".join(c if c == "\n" else " " for c in text[:length]) + text[length:]


_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff]")
"""Reserved for placeholders; a caller may not write them."""
_SURROGATES = re.compile("[\ud800-\udfff]")
_EDGE = 1e-9


class _Open(NamedTuple):
    """An open element; outside: the style around it."""

    name: str
    attributes: Mapping[str, str]
    outside: Style
    place: str


class Reader:
    """Reader of one document. speed: that of the request; is_phonemes: as
    `replacements.IsPhonemes`; marks: as in `replacements.replacement_of`. inserted: the items that
    the placeholders in the text represent; it grows while the document is read.

    The methods yield events in order. They raise InvalidRequest with the problem and its position,
    after the events before it.
    """

    def __init__(self, speed: float, is_phonemes: IsPhonemes, marks: PronunciationMarks | None = None) -> None:
        self.inserted: list[Inserted] = []
        self._speed, self._is_phonemes, self._marks = speed, is_phonemes, marks
        self._events: list[Event] = []
        self._open: list[_Open] = []
        self._style = Style()
        self._content: list[str] | None = None
        """Text of the open element of elements.TEXT_ALONE."""
        self._unread = 0
        """Number of open elements whose content is skipped."""
        self._named: set[str] = set()
        self._characters = self._bytes = 0
        self._parser = expat.ParserCreate()
        if hasattr(self._parser, "SetReparseDeferralEnabled"):
            # Newer versions of expat defer parsing a tag that arrives in small fragments to save
            # time, which LONGEST_TAG limits here.
            self._parser.SetReparseDeferralEnabled(False)
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = partial(self._refuse, "a document type declaration is not allowed")
        self._parser.StartCdataSectionHandler = partial(
            self._refuse, "a CDATA section is not allowed; write &lt; and &amp;"
        )

    def feed(self, fragment: str) -> Iterator[Event]:
        if not self._characters:
            fragment = without_declaration(fragment)
        self._characters += len(fragment)
        if self._characters > elements.LONGEST_DOCUMENT:
            raise InvalidRequest(
                f"the SSML document has over {elements.LONGEST_DOCUMENT} characters, the most that one may have"
            )
        yield from self._parsed(_SURROGATES.sub("\ufffd", fragment), last=False)

    def finish(self) -> Iterator[Event]:
        """The end of the document."""
        yield from self._parsed("", last=True)

    def _parsed(self, fragment: str, *, last: bool) -> Iterator[Event]:
        problem: InvalidRequest | None = None
        try:
            self._parser.Parse(fragment, last)
            self._bytes += len(fragment.encode())
            if self._bytes - max(0, self._parser.CurrentByteIndex) > 4 * elements.LONGEST_TAG and not last:
                raise self._wrong(f"a tag, comment or reference has over {elements.LONGEST_TAG} characters")
        except expat.ExpatError as error:
            problem = InvalidRequest(
                f"SSML, line {error.lineno}, column {error.offset + 1}: {expat.errors.messages[error.code]}"
            )
        except InvalidRequest as error:
            problem = error
        events, self._events = self._events, []
        yield from events
        if problem is not None:
            raise problem

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) >= elements.DEEPEST:
            raise self._wrong(f"elements are nested over {elements.DEEPEST} deep")
        if name == "speak" and self._open:
            raise self._wrong("speak is inside speak")
        self._open.append(_Open(name, attributes, self._style, self._here()))
        if name in elements.NOT_READ or self._unread:
            self._unread += 1
        known = None if self._unread else elements.READ.get(name)
        if known is None:
            self._name(name)
            return
        for attribute in attributes:
            if attribute not in known and attribute != "id" and not attribute.startswith(("xml:", "xmlns")):
                self._name(f"{name} {attribute}")
        if self._content is not None:
            raise self._wrong(f"{name} is inside {self._open[-2].name}, which may contain text only")
        try:
            self._begin(name, attributes)
        except ValueError as error:
            raise self._wrong(f"{name}: {error}") from None

    def _begin(self, name: str, attributes: Mapping[str, str]) -> None:
        if name in elements.TEXT_ALONE:
            require(name, attributes)
            self._content = []
        elif name == "break" and (
            milliseconds := break_milliseconds(attributes.get("time"), attributes.get("strength"))
        ):
            self._events.append(Pause(milliseconds))
        if name == "lang" and "xml:lang" not in attributes:
            raise ValueError("xml:lang is missing")
        style = self._style
        if "xml:lang" in attributes and name not in elements.TEXT_ALONE and name != "break":
            try:
                require_tag(attributes["xml:lang"], "xml:lang")
            except InvalidRequest as error:
                raise ValueError(error.message) from None
            style = style._replace(language=attributes["xml:lang"])
        if name == "prosody" and "rate" in attributes:
            style = style._replace(rate=self._rate(attributes["rate"]))
        self._change(style, style_only=name not in elements.SENTENCES)

    def _end(self, name: str) -> None:
        element = self._open.pop()
        if self._unread:
            self._unread -= 1
            return
        if name in elements.TEXT_ALONE:
            self._replace(element)
        elif name in elements.READ:
            self._change(element.outside, style_only=name not in elements.SENTENCES)

    def _replace(self, element: _Open) -> None:
        content, self._content = "".join(self._content or ()), None
        try:
            replacement = replacement_of(element.name, element.attributes, content, self._is_phonemes, self._marks)
        except ValueError as error:
            raise InvalidRequest(f"SSML, {element.place}: {element.name}: {error}") from None
        if isinstance(replacement, Notice):
            self._events += [replacement, SpokenText(content)]
        elif isinstance(replacement, str):
            self._events.append(SpokenText(_PRIVATE.sub("", replacement)))
        else:
            self._events.append(SpokenText(inserted_placeholder(len(self.inserted))))
            self.inserted.append(replacement)

    def _text(self, text: str) -> None:
        if self._unread:
            return
        text = text if text.isascii() else _PRIVATE.sub("", text)
        if self._content is not None:
            self._content.append(text)
        elif text:
            self._events.append(SpokenText(text))

    def _change(self, style: Style, *, style_only: bool) -> None:
        if style != self._style or not style_only:
            self._events.append(Boundary(style, style_only))
        self._style = style

    def _rate(self, value: str) -> float:
        rate = round(self._style.rate * rate_of(value), 6)
        if not SLOWEST - _EDGE <= rate * self._speed <= FASTEST + _EDGE:
            raise ValueError(
                f"rate {rate:g} times speed {self._speed:g} of the request is {rate * self._speed:g}, allowed are "
                f"{SLOWEST:g} to {FASTEST:g}"
            )
        return rate

    def _name(self, name: str) -> None:
        """Warn about an element or attribute, once per name."""
        if name in self._named or len(self._named) >= elements.MOST_NAMED:
            return
        self._named.add(name)
        message = (
            "SSML that is not supported; the text inside an element is read, except in metadata, meta, desc and lexicon"
        )
        self._events.append(Notice(Kind.UNSUPPORTED_MARKUP, message, (name[: elements.LONGEST_NAME],)))

    def _refuse(self, what: str, *_: object) -> None:
        raise self._wrong(what)

    def _here(self) -> str:
        return f"line {self._parser.CurrentLineNumber}, column {self._parser.CurrentColumnNumber + 1}"

    def _wrong(self, what: str) -> InvalidRequest:
        return InvalidRequest(f"SSML, {self._here()}: {what}")
