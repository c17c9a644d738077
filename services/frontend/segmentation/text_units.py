"""Where streamed text may be cut before the text after the cut is known.

A unit ends after a sentence end (`services.frontend.segmentation.sentence_ends`): a run of
`。？！；.?!;…` with its closing quotes and brackets, once the following text decides it. A unit
also ends after a pause (`services.frontend.segmentation.pauses`), and no cut falls inside one. Text
without an end is cut at its last blank, else comma, else anywhere, when it grows too long. A cut
depends only on the text up to the few characters that decide it, so any fragmentation of a text
gives the same units, and the units joined are the text.
"""

import re
from collections.abc import Iterator

from services.frontend.segmentation.pauses import LONGEST_TAG, TAG, open_tag
from services.frontend.segmentation.sentence_ends import END, ends_sentence

LONGEST_UNIT = 400
"""Characters after which text without a sentence end is cut."""
_BREAKS = "，,、：:"
_WORD_END = re.compile(r"\s+|[，、：]")
_WORD = re.compile(r"[\u3400-\u9fff]|(?:(?![\u3400-\u9fff])\w)+")


class Units:
    """Cuts a text that arrives in fragments. longest: maximum characters of a unit."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self.waiting = ""
        """The text since the last cut."""
        self._scanned = self._searched = 0

    def feed(self, fragment: str) -> Iterator[str]:
        """The units that `fragment` completes."""
        self.waiting += fragment
        while cut := self._next_cut():
            yield self._take(cut)

    def finish(self) -> str:
        """The remaining text, which may be empty."""
        return self._take(len(self.waiting))

    def finish_words(self, least: int) -> str:
        """The text up to the last blank or pause mark; empty when it has fewer than `least` words
        (Chinese: characters).
        """
        begun = open_tag(self.waiting)
        head = self.waiting if begun < 0 else self.waiting[:begun]
        cut = max((match.end() for match in _WORD_END.finditer(head)), default=0)
        return self._take(cut) if len(_WORD.findall(head[:cut])) >= least else ""

    def _take(self, cut: int) -> str:
        taken, self.waiting = self.waiting[:cut], self.waiting[cut:]
        self._scanned = self._searched = 0
        return taken

    def _next_cut(self) -> int:
        """Characters before the next cut; 0 when more text is needed."""
        pause = TAG.search(self.waiting, self._searched, self._longest)
        if pause is None:
            self._searched = max(self._searched, min(len(self.waiting), self._longest) - LONGEST_TAG)
        for end in END.finditer(self.waiting, self._scanned):
            if end.end() > self._longest or (pause and end.start() > pause.start()):
                break
            settled = None if end.end() == len(self.waiting) else ends_sentence(self.waiting, *end.span())
            if settled is None:
                self._scanned = end.start()
                return 0
            if settled:
                return end.end()
            self._scanned = end.end()
        else:
            if len(self.waiting) <= self._longest:
                self._scanned = max(self._scanned, len(self.waiting))
        if pause:
            return pause.end()
        return self._forced_cut() if len(self.waiting) > self._longest else 0

    def _forced_cut(self) -> int:
        head = self.waiting[: self._longest]
        begun = open_tag(head)
        if begun > 0:
            return begun
        blank = max((match.start() for match in re.finditer(r"\s", head)), default=0)
        if blank:
            return blank
        comma = max(head.rfind(mark) for mark in _BREAKS)
        return comma + 1 if comma >= 0 else self._longest


def units_of(text: str, longest: int) -> Iterator[str]:
    """`text` in units of at most `longest` characters."""
    units = Units(longest)
    yield from units.feed(text)
    if rest := units.finish():
        yield rest


def runs_of(text: str, longest: int) -> Iterator[str]:
    """`text` in runs of at most `longest` characters, each as many whole units as fit."""
    run = ""
    for unit in units_of(text, longest):
        if run and len(run) + len(unit) > longest:
            yield run
            run = ""
        run += unit
    if run:
        yield run
