"""Pronunciations of known words.

`phonemes/lexicon.tsv.gz`: UTF-8 lines `word TAB pronunciation [TAB FORM=pronunciation]...`, ordered
by word, each word once. A capitalised word applies to that spelling only (Polish, polish). FORM is
a use with its own pronunciation: VERB, NOUN, ADJ, ADV, PAST (past tense and participle), FINAL
(before a pause) or STRONG (stressed where it is usually weak).
"""

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cosyserve.errors import ModelError
from services.frontend.tokenizers.phonemes.symbols import is_pronunciation

FORMS = ("VERB", "NOUN", "ADJ", "ADV", "PAST", "FINAL", "STRONG")
MOST_BYTES = 64 << 20
"""A table that decompresses to more is refused before it fills the memory."""


class Lexicon(NamedTuple):
    """Immutable and thread-safe. words: usual pronunciations; forms: those of particular uses, by
    word and form. Each of exactly this spelling.
    """

    words: Mapping[str, str]
    forms: Mapping[str, Mapping[str, str]]


def read_lexicon(path: Path) -> Lexicon:
    """Read the lexicon. Raises ModelError naming the file and the line when it is unreadable or
    malformed.
    """
    words: dict[str, str] = {}
    forms: dict[str, dict[str, str]] = {}
    for number, line in enumerate(read_table(path), start=1):
        word, _, rest = line.partition("\t")
        usual, *others = rest.split("\t")
        if not word or not is_pronunciation(usual):
            raise ModelError(f"{path}: line {number} is not a word with its pronunciation")
        if word in words:
            raise ModelError(f"{path}: line {number} holds {word!r} again")
        words[word] = usual
        if others:
            pairs = dict(other.split("=", 1) for other in others if "=" in other)
            if len(pairs) != len(others) or not all(form in FORMS and is_pronunciation(pairs[form]) for form in pairs):
                raise ModelError(
                    f"{path}: line {number} has a form that is not one of {', '.join(FORMS)} with its pronunciation"
                )
            forms[word] = pairs
    return Lexicon(words, forms)


def write_lexicon(path: Path, words: Mapping[str, str], forms: Mapping[str, Mapping[str, str]]) -> None:
    """Write the file that `read_lexicon` reads; the same entries always give the same bytes."""
    lines = []
    for word in sorted(words):
        others = forms.get(word, {})
        lines.append("\t".join([word, words[word], *(f"{form}={others[form]}" for form in FORMS if form in others)]))
    write_table(path, lines)


def read_table(path: Path) -> list[str]:
    """The lines of a gzip file of UTF-8 text. Raises ModelError naming the file when it is
    unreadable or over 64 MiB.
    """
    try:
        with gzip.open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ModelError(f"{path}: unpacks to more than {MOST_BYTES >> 20} MiB")
        text = data.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: not a readable gzip file of UTF-8 text: {error}") from error
    return text.removesuffix("\n").split("\n") if text else []


def write_table(path: Path, lines: list[str]) -> None:
    """Write gzip without a name and date, so that equal lines give equal bytes."""
    with path.open("wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=9, mtime=0) as file:
        file.write("".join(f"{line}\n" for line in lines).encode("utf-8"))
