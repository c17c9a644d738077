"""The characters of a speech with their times, in the two forms of this API."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from cosyserve.client.types import WordTime
from services.gateway.elevenlabs.alignment.written_text import Stretch, WrittenText


@dataclass
class CharacterTimes:
    """starts, ends: of each character, in seconds from the beginning of the utterance; neither ever
    descends.
    """

    characters: list[str] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    def add(self, text: str, start: float, end: float) -> None:
        """Characters that share this time evenly."""
        for place, character in enumerate(text):
            self.characters.append(character)
            self.starts.append(start + (end - start) * place / len(text))
            self.ends.append(start + (end - start) * (place + 1) / len(text))

    def add_gap(self, text: str, start: float, end: float) -> None:
        """Characters between words: its first blank, else its first character, lasts as long as the
        gap; what touches a word takes no time.
        """
        long = next((place for place, character in enumerate(text) if character.isspace()), 0)
        self.add(text[:long], start, start)
        self.add(text[long : long + 1], start, end)
        self.add(text[long + 1 :], end, end)

    def extend(self, later: "CharacterTimes") -> None:
        """Append the characters that follow these."""
        self.characters += later.characters
        self.starts += later.starts
        self.ends += later.ends

    def in_seconds(self) -> dict[str, object]:
        """As HTTP answers have it."""
        return {
            "characters": self.characters,
            "character_start_times_seconds": [round(start, 3) for start in self.starts],
            "character_end_times_seconds": [round(end, 3) for end in self.ends],
        }

    def in_milliseconds(self, since: int) -> dict[str, object]:
        """As messages of WebSockets have it. since: where these times begin to count, in
        milliseconds from the beginning of the utterance.
        """
        starts = [round(1000 * start) for start in self.starts]
        ends = [round(1000 * end) for end in self.ends]
        return {
            "chars": self.characters,
            "charStartTimesMs": [start - since for start in starts],
            "charDurationsMs": [end - start for start, end in zip(starts, ends, strict=True)],
        }


@dataclass
class Alignment:
    """The same part of a speech, as it was written and as it is spoken. end: in seconds."""

    written: CharacterTimes
    spoken: CharacterTimes
    end: float


class SpokenText:
    """The text of one utterance, which becomes an alignment while its words become known. A speech
    without word times has none.
    """

    def __init__(self, text: str = "") -> None:
        self._text = WrittenText()
        self._text.add(text)
        self._known = 0
        self._end = 0.0

    def add(self, text: str) -> None:
        """Text that was passed on to be spoken."""
        self._text.add(text)

    def end_phrase(self) -> None:
        """What comes next is another phrase, which a blank separates from this one."""
        if not self._text.ends_in_blank:
            self._text.add(" ")

    def news(self, words: Sequence[WordTime]) -> Alignment | None:
        """The characters of the sentences whose words became known since the last call. words: all
        so far.
        """
        fresh, self._known = words[self._known :], len(words)
        if not fresh:
            return None
        stretches: list[Stretch] = []
        for _, sentence in groupby(fresh, lambda word: word.sentence):
            stretches += self._text.take(list(sentence))
        return self._timed(stretches)

    def rest(self) -> Alignment | None:
        """The characters behind the last word, at the end of the utterance."""
        if not self._known:
            return None
        alignment = self._timed(self._text.take_rest())
        return alignment if alignment.written.characters else None

    def _timed(self, stretches: Sequence[Stretch]) -> Alignment:
        written, spoken = CharacterTimes(), CharacterTimes()
        for place, stretch in enumerate(stretches):
            if stretch.times is not None:
                start, end = max(stretch.times[0], self._end), max(stretch.times[1], self._end)
                written.add(stretch.written, start, end)
                spoken.add(stretch.spoken, start, end)
                self._end = end
                continue
            begins = next((later.times[0] for later in stretches[place:] if later.times is not None), self._end)
            written.add_gap(stretch.written, self._end, max(begins, self._end))
            spoken.add_gap(stretch.spoken, self._end, max(begins, self._end))
            if stretch.written:
                self._end = max(begins, self._end)
        return Alignment(written, spoken, self._end)
