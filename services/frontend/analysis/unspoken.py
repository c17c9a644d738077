"""Notes what of a text a model leaves out, in the log of a call."""

import re

from services.frontend.text.meaningful_characters import has_meaning, stretches
from services.frontend.text.text_warnings import Kind, WarningLog
from services.frontend.tokenizers.placeholders import CARRIED, mark_of
from services.frontend.tokenizers.tokenizer import Tokenizer

_SSML = re.compile(r"</?(say-as|phoneme|prosody|emphasis|voice|speak|lang|break|sub(?=\s+alias))\b", re.IGNORECASE)
_PAGE_MARKS = ("<strong>", "</strong>")
"""Marks of sound that are HTML as well: nobody misses them."""
OUTSIDE = (
    "SSML is heeded only in a text that begins with <speak; elsewhere its tags are not spoken and what stands inside "
    "is read"
)


def note_unspoken(text: str, tokenizer: Tokenizer, log: WarningLog, *, dropped: bool) -> None:
    """text: a stretch of normalised text with its carriers; dropped: nothing of it is given to the
    tokenizer.
    """
    carried = CARRIED.findall(text)
    if carried:
        marks = [
            mark
            for mark in map(mark_of, "".join(carried))
            if mark and mark not in _PAGE_MARKS and tokenizer.id_of(mark) is None
        ]
        if marks:
            log.add(Kind.UNREADABLE, "marks of sound that this model has no tokens for are left out", marks)
        text = CARRIED.sub(" ", text)
    found = stretches(text, lambda place: has_meaning(text[place])) if dropped else tokenizer.unread(text)
    if found:
        log.add(
            Kind.UNREADABLE, f"letters or signs that this model cannot speak are left out{languages(tokenizer)}", found
        )


def note_ssml_outside(text: str, log: WarningLog) -> None:
    """Tags of SSML in a text that is no document of it."""
    found = _SSML.findall(text)
    if found:
        log.add(Kind.UNSUPPORTED_MARKUP, OUTSIDE, (name.lower() for name in found))


def languages(tokenizer: Tokenizer) -> str:
    """For people, behind a sentence: what a model's tokenizer can read; nothing where that is every
    language.
    """
    return f"; the model reads {', '.join(tokenizer.languages)}" if tokenizer.languages else ""
