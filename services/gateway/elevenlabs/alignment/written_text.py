"""A text as it was written, cut into stretches that are spoken as one or more words.

The speech service says when each word is spoken, in the form in which it is spoken: "42" is two
words. Here the words find their place in the text. No character is lost or repeated: the stretches
of a text, put together, are the text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from cosyserve.client.types import WordTime

_WORD = re.compile(r"[㐀-鿿豈-﫿]|[^\W㐀-鿿豈-﫿]+(?:['’.,:][^\W㐀-鿿豈-﫿]+)*")
"""A letter of Chinese, or letters and digits, with what is inside of numbers and contractions."""
_APOSTROPHES = str.maketrans("", "", "'’_")
_SENTENCE_ENDS = re.compile(r"[.!?…;:。！？；：\n]")
_CLOSING = ".,;:!?…。！？；：，、)]}>\"'”’»"
_FURTHER_WORDS = 24
"""How many more words than are spoken are looked at: as many may be written and not spoken."""
_SAME, _SPOKEN_ALONE, _WRITTEN_ALONE = 4, -1, -2
"""Scores: a match, a spoken word that is not written, a written word that is not spoken. A number
is one written word and several spoken ones, so the former counts less.
"""


@dataclass(frozen=True)
class Stretch:
    """Characters of the text, and what is spoken of them. start, end: seconds, of the words in it;
    None: it lies between words. One of the texts may be empty.
    """

    written: str
    spoken: str
    times: tuple[float, float] | None = None


class WrittenText:
    """Text to which more is added while its words become known, sentence by sentence."""

    def __init__(self) -> None:
        self._rest = ""
        self._last = ""

    @property
    def ends_in_blank(self) -> bool:
        """Whether nothing was added, or last a blank."""
        return not self._last or self._last.isspace()

    def add(self, text: str) -> None:
        """More text, whose words are not known yet."""
        self._rest += text
        self._last = text[-1:] or self._last

    def take(self, words: Sequence[WordTime]) -> list[Stretch]:
        """The beginning of what is left, of which these are all words; at least one."""
        found = list(islice(_WORD.finditer(self._rest), len(words) + _FURTHER_WORDS))
        pairs = matched([_key(word.text) for word in words], [_key(token.group()) for token in found])
        count = self._spoken_tokens(found, pairs, len(words))
        stretches: list[Stretch] = []
        at = i = j = 0
        for next_i, next_j in [*pairs, (len(words), count)]:
            if i < next_i or j < next_j:
                at = self._differing(stretches, words[i:next_i], found[j:next_j], at)
                if next_j > j and next_i < len(words) and self._rest[at : at + 1] == ".":
                    at = self._abbreviated(stretches, at)
            if next_i < len(words):
                at = self._same(stretches, words[next_i], found[next_j], at)
            i, j = next_i + 1, next_j + 1
        end = self._border(at, found[count].start() if count < len(found) else len(self._rest))
        stretches.append(Stretch(self._rest[at:end], self._rest[at:end]))
        self._rest = self._rest[end:]
        return stretches

    def take_rest(self) -> list[Stretch]:
        """What is left of a text whose words are all known."""
        rest, self._rest = self._rest, ""
        return [Stretch(rest, rest)]

    def _spoken_tokens(self, found: Sequence[re.Match[str]], pairs: Sequence[tuple[int, int]], words: int) -> int:
        """How many written words these spoken ones are. Where the last ones were not found, as far
        as a sentence may end.
        """
        spoken, count = (pairs[-1][0] + 1, pairs[-1][1] + 1) if pairs else (0, 0)
        if spoken == words:
            return count
        for place in range(count, len(found)):
            after = found[place + 1].start() if place + 1 < len(found) else len(self._rest)
            if _SENTENCE_ENDS.search(self._rest, found[place].end(), after):
                return place + 1
        return len(found)

    def _same(self, stretches: list[Stretch], word: WordTime, token: re.Match[str], at: int) -> int:
        between = self._rest[at : token.start()]
        stretches.append(Stretch(between, between))
        stretches.append(Stretch(token.group(), token.group(), (word.start, word.end)))
        return token.end()

    def _differing(
        self, stretches: list[Stretch], words: Sequence[WordTime], tokens: Sequence[re.Match[str]], at: int
    ) -> int:
        """Written words and spoken ones that are not the same words, such as those of a number,
        with the signs that touch them.
        """
        spoken = " ".join(word.text for word in words)
        times = (words[0].start, words[-1].end) if words else None
        if not tokens:
            stretches.append(Stretch("", f" {spoken}", times))
            return at
        begin, end = tokens[0].start(), tokens[-1].end()
        while begin > at and not self._rest[begin - 1].isspace() and self._rest[begin - 1] not in _CLOSING:
            begin -= 1
        while end < len(self._rest) and self._is_sign(end):
            end += 1
        stretches.append(Stretch(self._rest[at:begin], self._rest[at:begin]))
        stretches.append(Stretch(self._rest[begin:end], spoken, times))
        return end

    def _abbreviated(self, stretches: list[Stretch], at: int) -> int:
        """A full stop inside of a sentence belongs to the word before it, which it abbreviates."""
        last = stretches[-1]
        stretches[-1] = Stretch(last.written + ".", last.spoken, last.times)
        return at + 1

    def _is_sign(self, place: int) -> bool:
        character = self._rest[place]
        return not (character.isspace() or character.isalnum() or character in _CLOSING)

    def _border(self, begin: int, end: int) -> int:
        """Where the text between two sentences is cut: what touches the next one belongs to it."""
        if end == len(self._rest):
            return end
        between = self._rest[begin:end]
        blanks = [place for place, character in enumerate(between) if character.isspace()]
        if blanks:
            return begin + blanks[-1] + 1
        return begin + len(between) - len(between.lstrip(_CLOSING))


def _key(word: str) -> str:
    return word.casefold().translate(_APOSTROPHES)


def matched(spoken: Sequence[str], written: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of positions in both, ascending in both. The whole of `spoken` belongs to a beginning
    of `written`, of unknown length; of several ways to match, the best one is taken, and of equal
    ones the earliest. Behind the first words that differ, the time grows with the product of both
    lengths.
    """
    same = 0
    while same < min(len(spoken), len(written)) and spoken[same] == written[same]:
        same += 1
    rest = _best(spoken[same:], written[same:]) if same < len(spoken) else []
    return [*((place, place) for place in range(same)), *((same + i, same + j) for i, j in rest)]


def _best(spoken: Sequence[str], written: Sequence[str]) -> list[tuple[int, int]]:
    """scores[i][j] is the score of the best match of spoken[i:] and written[j:]."""
    width = len(written)
    scores = [[0] * (width + 1) for _ in range(len(spoken) + 1)]
    for i in reversed(range(len(spoken))):
        below, row = scores[i + 1], scores[i]
        row[width] = below[width] + _SPOKEN_ALONE
        for j in reversed(range(width)):
            row[j] = max(below[j] + _SPOKEN_ALONE, row[j + 1] + _WRITTEN_ALONE)
            if spoken[i] == written[j]:
                row[j] = max(row[j], below[j + 1] + _SAME)
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(spoken) and j < width:
        if spoken[i] == written[j] and scores[i][j] == scores[i + 1][j + 1] + _SAME:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif scores[i][j] == scores[i + 1][j] + _SPOKEN_ALONE:
            i += 1
        else:
            j += 1
    return pairs
