"""Incremental sentences: the token ids of an unfinished text that no later text can change.

A unit of text (`services.frontend.segmentation.text_units`) is cut into runs between words, and
each run is normalised by itself. A cut needs a plain word, letters only, on both sides: the reading
of a number, an amount or an abbreviation depends on its neighbours, so they stay in the same run;
so do the words of a link's text and of a dictionary's written form. Cuts depend only on the unit's
text, so any fragmentation of the text gives the same ids; where there is nothing to normalise, they
are the ids of the whole unit.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cosyserve.spec import LONGEST_SENTENCE
from services.frontend.normalization.english_readings import is_roman_numeral
from services.frontend.segmentation.pauses import Pause, passages
from services.frontend.segmentation.sentence_splitter import is_only_marks
from services.frontend.text.language import CHINESE
from services.frontend.tokenizers.tokenizer import FinalIds, IncrementalEncoder

_WORD = re.compile(r"[，、：]?[^\s，、：]+")
_PLAIN = re.compile(r"[，、：]?[^\W\d_]+(?:['’-][^\W\d_]+)*,?")
_ENDS = frozenset(".?!;:。？！；：…\"'”’)）」』》»")


Normalise = Callable[[str, str, bool], tuple[str, str]]
"""Normalises (run, character before it, whether it is the last): the text, as it is passed to the
tokenizer, and its language.
"""


@dataclass(frozen=True)
class Sentence:
    """One sentence, synthesized by one request to the speech-token model; or, of a sentence that is
    still being written, its new ids.
    """

    text: str
    """The normalised text, as it is spoken; empty where the sentence comes in parts."""
    token_ids: tuple[int, ...]
    """1 to 200 ids (spec.LONGEST_SENTENCE), over all parts; the last part may have none."""
    language: str
    """As `services.frontend.text.language.language_of` gives it."""
    words: tuple[tuple[str, int, int], ...] = ()
    """Each word of these ids with the index of its first id, counted from the sentence's first id,
    and the number of its ids; see `Tokenizer.spoken_words`.
    """
    rate: float = 1.0
    """Speaking rate, multiplied by that of the request."""
    continues: bool = False
    """It continues the previous sentence without a sentence end between them, because only the
    style changes or the caller's limit cut it; set in the first part.
    """
    unfinished: bool = False
    """More parts of this sentence follow."""


class IncrementalSentences:
    """The sentences of one text. `feed` receives the open unit repeatedly, each time with all its
    text so far.
    """

    def __init__(
        self, normalise: Normalise, encoder_factory: Callable[[], IncrementalEncoder], holds: Callable[[str], bool]
    ) -> None:
        """holds: whether a written form of several words may have begun at the end of a text."""
        self._normalise, self._encoder_factory, self._holds = normalise, encoder_factory, holds
        self._begin_unit()
        self._emitted = 0

    def _begin_unit(self) -> None:
        self._ids = self._encoder_factory()
        self._begin = self._scanned = 0
        self._plain_before = False
        self._before = ""
        self._language = ""
        self.ended = 0
        """Sentences of the open unit that have ended although the unit has not."""

    def feed(self, unit: str, *, complete: bool = False) -> Iterator[Sentence]:
        """`unit`: all text of the open unit so far. It is cut before each complete plain word that
        follows another plain word.
        """
        for word in _WORD.finditer(unit, self._scanned):
            # A word is complete when a mark or a blank follows it, or the end of a complete unit.
            if word.end() == len(unit) and not complete:
                return
            plain = _PLAIN.fullmatch(word[0]) is not None and not is_roman_numeral(word[0])
            cut = self._scanned
            if (
                plain
                and self._plain_before
                # Not in brackets: they may be those of a link.
                and unit.rfind("[", self._begin, cut) <= unit.rfind("]", self._begin, cut)
                and not self._holds(unit[:cut])
            ):
                yield from self._parts(self._ids.feed(self._spoken(unit[self._begin : cut], last=False)))
                self._begin = cut
            self._plain_before, self._scanned = plain, word.end()

    def finish(self, unit: str) -> Iterator[Sentence | Pause]:
        """`unit`: the same unit, complete; the next call begins a new one. A unit without speech
        yields nothing. A pause at the end of the unit comes last; raises InvalidRequest when it is
        outside its range.
        """
        yield from self.feed(unit, complete=True)
        items = list(passages(unit[self._begin :]))
        rest = self._spoken("".join(words for words in items if isinstance(words, str)).rstrip(), last=True)
        if self._begin or not is_only_marks(rest):
            if rest and rest[-1] not in _ENDS:
                rest += "。" if self._language == CHINESE else "."
            yield from self._parts(self._ids.finish(rest))
        if self._emitted:
            yield Sentence("", (), self._language)
        self._emitted = 0
        self._begin_unit()
        yield from (pause for pause in items if isinstance(pause, Pause))

    def _spoken(self, run: str, *, last: bool) -> str:
        run = run if self._begin else run.lstrip()
        text, self._language = self._normalise(run, self._before, last)
        self._before = run[-1:]
        return text

    def _parts(self, final: FinalIds) -> Iterator[Sentence]:
        while final.ids:
            opening = () if self._emitted else self._ids.opening
            begin = self._emitted + len(opening)
            room = LONGEST_SENTENCE - begin
            if self._emitted and len(final.ids) > room:
                self.ended += 1
                yield Sentence("", (), self._language)
                self._emitted = 0
                continue
            head, final = _cut(final, room)
            words = tuple((word, begin + place, count) for word, place, count in head.words)
            self._emitted = begin + len(head.ids)
            yield Sentence("", (*opening, *head.ids), self._language, words, unfinished=True)


def _cut(final: FinalIds, most: int) -> tuple[FinalIds, FinalIds]:
    """Split the ids after at most `most` of them, between two words. A word that is longer than
    that is cut.
    """
    ids, words = final
    if len(ids) <= most:
        return final, FinalIds([])
    cut = max((place for _, place, _ in words if 0 < place <= most), default=most)
    before = [(word, place, min(count, cut - place)) for word, place, count in words if place < cut]
    after = [(word, place - cut, count) for word, place, count in words if place >= cut]
    return FinalIds(ids[:cut], before), FinalIds(ids[cut:], after)
