"""Warnings about text that a model leaves out."""

import re

from services.frontend.text.characters import has_meaning, stretches
from services.frontend.text.text_warnings import Kind, WarningLog
from services.frontend.tokenizers.placeholders import PLACEHOLDERS, mark_of
from services.frontend.tokenizers.tokenizer import Tokenizer

_SSML = re.compile(r"</?(say-as|phoneme|prosody|emphasis|voice|speak|lang|break|sub(?=\s+alias))\b", re.IGNORECASE)
_PAGE_MARKS = ("<strong>", "</strong>")
"""Sound tags that are HTML as well: leaving them out needs no warning."""
SSML_OUTSIDE_DOCUMENT = (
    "SSML is parsed only in a text that begins with <speak; elsewhere its tags are not spoken and the text inside "
    "is read"
)


def note_unspoken(text: str, tokenizer: Tokenizer, log: WarningLog, *, dropped: bool) -> None:
    """text: a span of normalised text with its placeholders; dropped: none of it is passed to the
    tokenizer.
    """
    carried = PLACEHOLDERS.findall(text)
    if carried:
        marks = [
            mark
            for mark in map(mark_of, "".join(carried))
            if mark and mark not in _PAGE_MARKS and tokenizer.id_of(mark) is None
        ]
        if marks:
            log.add(Kind.UNREADABLE, "marks of sound that this model has no tokens for are left out", marks)
        text = PLACEHOLDERS.sub(" ", text)
    unread = stretches(text, lambda place: has_meaning(text[place])) if dropped else tokenizer.unread(text)
    if unread:
        log.add(
            Kind.UNREADABLE, f"letters or signs that this model cannot speak are left out{languages(tokenizer)}", unread
        )


def note_ssml_outside(text: str, log: WarningLog) -> None:
    """Warn about SSML tags in a text that is no SSML document."""
    tags = _SSML.findall(text)
    if tags:
        log.add(Kind.UNSUPPORTED_MARKUP, SSML_OUTSIDE_DOCUMENT, (name.lower() for name in tags))


def languages(tokenizer: Tokenizer) -> str:
    """The end of a message that names the languages that a model's tokenizer can read; empty where
    it reads every language.
    """
    return f"; the model reads {', '.join(tokenizer.languages)}" if tokenizer.languages else ""
