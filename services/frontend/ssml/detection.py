"""Whether a text is an SSML document, decided by its first characters as soon as they have
arrived.
"""

import regex

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
