"""Whether a text is an SSML document: told by its first characters, as soon as they are there."""

import regex

MOST_BLANKS = 400
"""In front of the document: more of them, and the text is plain."""
_BEGINNING = regex.compile(
    rf"[\s\ufeff]{{0,{MOST_BLANKS}}}(?:<\?xml\s[^<>]{{0,200}}\?>\s{{0,{MOST_BLANKS}}})?"
    rf"(?:<speak[\s/>]|<!DOCTYPE\s{{1,9}}speak[\s>])"
)
"""A document with a document type is one too, so that it is refused for what it is."""
_DECLARATION = regex.compile(rf"[\s\ufeff]{{0,{MOST_BLANKS}}}(?:<\?xml\s[^<>]{{0,200}}\?>)?")


def begins_document(text: str) -> bool | None:
    """Whether a text that begins with `text` is an SSML document; None while more of it is needed
    to tell.
    """
    found = _BEGINNING.match(text, partial=True)
    return False if found is None else None if found.partial else True


def is_document(text: str) -> bool:
    """Whether the whole of `text` is an SSML document, well-formed or not."""
    return "speak" in text and begins_document(text) is True


def without_declaration(text: str) -> str:
    """A document whose byte order mark and XML declaration, which say nothing of a text that is
    decoded, are blanks: so places in it stay what they are, and blanks may stand in front of them.
    """
    prologue = _DECLARATION.match(text)
    length = prologue.end() if prologue else 0
    return "".join(c if c == "\n" else " " for c in text[:length]) + text[length:]
