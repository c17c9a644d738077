"""Sentences while they are being written: the token ids that no later text can change.

A unit of text (`services.frontend.segmentation.text_units`) is cut into runs between words, and
each run is normalised by itself. A cut needs a plain word, letters alone, on each side: what a
number, an amount or an abbreviation becomes depends on its neighbours, so they stay in its run; so
do the words of a link's text, and those of a written form of a dictionary. Cuts depend on the
unit's text alone, so any cutting of the text into fragments gives the same ids; where there is
nothing to normalise they are those of the whole unit.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cosyserve.spec import LONGEST_SENTENCE
from services.frontend.normalization.english.unfinished_forms import decides
from services.frontend.segmentation.pauses import Pause, passages
from services.frontend.segmentation.sentence_splitter import is_only_marks
from services.frontend.text.language import CHINESE
from services.frontend.tokenizers.tokenizer import Certain, GrowingIds

_WORD = re.compile(r"[，、：]?[^\s，、：]+")
_PLAIN = re.compile(r"[，、：]?[^\W\d_]+(?:['’-][^\W\d_]+)*,?")
_ENDS = frozenset(".?!;:。？！；：…\"'”’)）」』》»")


class Spoken(NamedTuple):
    """A run as the tokenizer is given it, and the language that it is read in."""

    text: str
    language: str


Normalise = Callable[[str, str, bool], Spoken]
"""(run, character before it, whether it is the last) to its spoken form."""


@dataclass(frozen=True)
class Part:
    """New ids of a sentence, 200 (spec.LONGEST_SENTENCE) at most in all its parts. The last part of
    a sentence may have none.
    """

    token_ids: tuple[int, ...]
    language: str
    unfinished: bool
    words: tuple[tuple[str, int, int], ...] = ()
    """Those that the new ids say, as `Tokenizer.spoken_words`; places are counted from the
    sentence's first id.
    """
    rate: float = 1.0
    """As `analysis.Sentence`."""
    continues: bool = False
    """As `analysis.Sentence`; told with the first ids."""


class PartialSentences:
    """The sentences of one text, of which `feed` is told the open unit again and again, as far as
    it has come.
    """

    def __init__(self, normalise: Normalise, growing: Callable[[], GrowingIds], holds: Callable[[str], bool]) -> None:
        """holds: whether a written form that goes on behind a blank may have begun at the end of a
        text.
        """
        self._normalise, self._growing, self._holds = normalise, growing, holds
        self._begin_unit()
        self._made = 0

    def feed(self, unit: str) -> Iterator[Part]:
        """`unit`: the open unit as far as it has come, always from its start."""
        yield from self._runs(unit, complete=False)

    def finish(self, unit: str) -> Iterator[Part | Pause]:
        """The same unit, complete; the next one begins. Nothing comes of a unit with nothing to
        speak. The pause that may end a unit comes last; raises InvalidRequest when it is outside
        its range."""
        yield from self._runs(unit, complete=True)
        found = list(passages(unit[self._begin :]))
        rest = self._spoken("".join(words for words in found if isinstance(words, str)).rstrip(), last=True)
        if self._begin or not is_only_marks(rest):
            if rest and rest[-1] not in _ENDS:
                rest += "。" if self._language == CHINESE else "."
            yield from self._parts(self._ids.finish(rest))
        if self._made:
            yield Part((), self._language, unfinished=False)
        self._made = 0
        self._begin_unit()
        yield from (pause for pause in found if isinstance(pause, Pause))

    def _begin_unit(self) -> None:
        self._ids = self._growing()
        self._begin = self._scanned = 0
        self._plain_before = False
        self._before = ""
        self._language = ""
        self.ended = 0
        """Sentences of the open unit that are over, though the unit is not."""

    def _runs(self, unit: str, *, complete: bool) -> Iterator[Part]:
        """Cut in front of each word that is complete and plain, as the one before it is."""
        for word in _WORD.finditer(unit, self._scanned):
            # A mark or a blank behind a word completes it; at the end of a complete unit so does
            # the end.
            if word.end() == len(unit) and not complete:
                return
            plain = _PLAIN.fullmatch(word[0]) is not None and not decides(word[0])
            cut = self._scanned
            if (
                plain
                and self._plain_before
                and not _in_brackets(unit[self._begin : cut])
                and not self._holds(unit[:cut])
            ):
                yield from self._parts(self._ids.feed(self._spoken(unit[self._begin : cut], last=False)))
                self._begin = cut
            self._plain_before, self._scanned = plain, word.end()

    def _spoken(self, run: str, *, last: bool) -> str:
        run = run if self._begin else run.lstrip()
        spoken = self._normalise(run, self._before, last)
        self._language = spoken.language
        self._before = run[-1:]
        return spoken.text

    def _parts(self, certain: Certain) -> Iterator[Part]:
        while certain.ids:
            opening = () if self._made else self._ids.opening
            begin = self._made + len(opening)
            room = LONGEST_SENTENCE - begin
            if self._made and len(certain.ids) > room:
                self.ended += 1
                yield Part((), self._language, unfinished=False)
                self._made = 0
                continue
            taken, certain = _cut(certain, room)
            words = tuple((word, begin + place, count) for word, place, count in taken.words)
            self._made = begin + len(taken.ids)
            yield Part((*opening, *taken.ids), self._language, unfinished=True, words=words)


def _cut(certain: Certain, most: int) -> tuple[Certain, Certain]:
    """The first ids, `most` of them or as far as the words in them go, and the rest. A word that is
    longer ends with them.
    """
    ids, words = certain
    if len(ids) <= most:
        return certain, Certain([])
    cut = max((place for _, place, _ in words if 0 < place <= most), default=most)
    before = [(word, place, min(count, cut - place)) for word, place, count in words if place < cut]
    behind = [(word, place - cut, count) for word, place, count in words if place >= cut]
    return Certain(ids[:cut], before), Certain(ids[cut:], behind)


def _in_brackets(run: str) -> bool:
    return run.rfind("[") > run.rfind("]")
