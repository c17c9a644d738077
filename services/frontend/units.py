"""Where running text may be cut before anything behind the cut is known.

A unit ends behind a sentence end: a run of `。？！；.?!;` with the quotes and brackets that close behind it, once the next character
settles it. An ASCII end needs a blank or a non-ASCII character behind it (`3.14`, `a.b/c?d`) and is none behind a title or an initial
(`Dr. Smith`, `J. Doe`). A unit also ends behind a pause (`services.frontend.pauses`), and no cut falls inside one. Text without an end is
cut at its last blank, else comma, else anywhere, when it grows too long. A cut depends on the text up to the character behind it and on
nothing else, so any splitting of the same text into fragments gives the same units, and the units joined are the text.
"""

import re
from collections.abc import Iterator

from services.frontend.pauses import LONGEST_TAG, TAG, open_tag

_END = re.compile(r"""[。？！；.?!;][。？！；.?!;"'”’)）\]】」』》›»]*""")
_FULL_WIDTH = frozenset("。？！；")
_NO_END = re.compile(r"(?:^|[\s(\"“‘'])(?:Mr|Mrs|Ms|Dr|Prof|St|vs|No|Fig|e\.g|i\.e|[A-Z])\.$")
_SHORT = 16
_BREAKS = "，,、：:"
_WORD_END = re.compile(r"\s+|[，、：]")
_WORD = re.compile(r"[\u3400-\u9fff]|(?:(?![\u3400-\u9fff])\w)+")


class Units:
    """Cuts a growing text. longest: characters in a unit at most."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._buffer = ""
        self._scanned = 0
        self._searched = 0

    def feed(self, fragment: str) -> Iterator[str]:
        """The units that `fragment` completes."""
        self._buffer += fragment
        while cut := self._next_cut():
            yield self._buffer[:cut]
            self._buffer = self._buffer[cut:]
            self._scanned = self._searched = 0

    def finish(self) -> str:
        """What is left at the end of the text; may be empty."""
        rest, self._buffer, self._scanned = self._buffer, "", 0
        self._searched = 0
        return rest

    @property
    def waiting(self) -> str:
        """What has come since the last cut."""
        return self._buffer

    def finish_words(self, least: int) -> str:
        """What has come up to the last blank, or mark of a pause; empty when that is less than `least` words (Chinese: characters)."""
        begun = open_tag(self._buffer)
        head = self._buffer if begun < 0 else self._buffer[:begun]
        cut = max((match.end() for match in _WORD_END.finditer(head)), default=0)
        if len(_WORD.findall(head[:cut])) < least:
            return ""
        words, self._buffer, self._scanned = self._buffer[:cut], self._buffer[cut:], 0
        self._searched = 0
        return words

    def _next_cut(self) -> int:
        """Characters before the next cut, 0 when more text is needed to tell."""
        pause = TAG.search(self._buffer, self._searched, self._longest)
        if pause is None:
            self._searched = max(self._searched, min(len(self._buffer), self._longest) - LONGEST_TAG)
        for end in _END.finditer(self._buffer, self._scanned):
            if end.end() > self._longest or (pause and end.start() > pause.start()):
                break
            if end.end() == len(self._buffer):
                self._scanned = end.start()
                return 0
            if self._ends_sentence(end):
                return end.end()
            self._scanned = end.end()
        else:
            if len(self._buffer) <= self._longest:
                self._scanned = max(self._scanned, len(self._buffer))
        if pause:
            return pause.end()
        return self._forced_cut() if len(self._buffer) > self._longest else 0

    def _ends_sentence(self, end: re.Match[str]) -> bool:
        if _FULL_WIDTH & set(end[0]):
            return True
        behind = self._buffer[end.end()]
        if not (behind.isspace() or not behind.isascii()):
            return False
        return end[0] != "." or not _NO_END.search(self._buffer, max(0, end.end() - _SHORT), end.end())

    def _forced_cut(self) -> int:
        head = self._buffer[: self._longest]
        begun = open_tag(head)
        if begun > 0:
            return begun
        blank = max((match.start() for match in re.finditer(r"\s", head)), default=0)
        if blank:
            return blank
        comma = max(head.rfind(mark) for mark in _BREAKS)
        return comma + 1 if comma >= 0 else self._longest


def runs_of(text: str, longest: int) -> Iterator[str]:
    """`text` in runs of at most `longest` characters, each as many whole units as fit."""
    units = Units(longest)
    run = ""
    for unit in (*units.feed(text), units.finish()):
        if run and len(run) + len(unit) > longest:
            yield run
            run = ""
        run += unit
    if run:
        yield run
