"""What became of a short reply: whether all its words were spoken, and once.

Two recognisers have to agree before a word counts as left out: a single one mishears short words,
names and letters now and then. The second witness are the times of the words: what is not spoken
has none.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cosyserve.client.types import WordTime
from tools.quality.words.alignment import Differences, WordErrors, align, differences
from tools.quality.words.spelling import words_of

SHORTEST_SECONDS = 0.05
"""A word of FEWEST_LETTERS that is over sooner was not spoken."""
FEWEST_LETTERS = 2
ABOVE_RECORDED = 0.01
"""What speaking or converting may cost in word error rate beside recordings of the same texts."""
_COLUMNS = (
    f"{'voice':<24}{'seed':>5}{'replies':>9}{'words lost':>12}{'too short':>11}{'said twice':>12}{'misheard':>10}"
)


@dataclass(frozen=True)
class Reply:
    """One reply as it was heard. left_out, misheard: words that every ear missed, or took for
    another one; too_short: words by their times; said_twice: words of the text that every ear heard
    once more than it has them. errors, heard: by ear."""

    number: int
    text: str
    heard: Mapping[str, str]
    errors: Mapping[str, WordErrors]
    left_out: tuple[str, ...]
    misheard: tuple[str, ...]
    too_short: tuple[str, ...]
    said_twice: tuple[str, ...]

    @property
    def lost(self) -> bool:
        return bool(self.left_out or self.too_short)

    @property
    def remarkable(self) -> bool:
        return bool(self.lost or self.misheard or self.said_twice)


def judged(number: int, text: str, heard: Mapping[str, str], words: Sequence[WordTime]) -> Reply:
    """heard: by ear, at least one. words: with the server's times at speed 1.0, none where it
    reports none.
    """
    reference = words_of(text)
    differences_by_ear = {ear: differences(reference, words_of(said)) for ear, said in heard.items()}
    left_out = frozenset.intersection(*(each.left_out for each in differences_by_ear.values()))
    missed = frozenset.intersection(*(each.left_out | each.misheard for each in differences_by_ear.values()))
    return Reply(
        number,
        text,
        dict(heard),
        {ear: align(reference, words_of(said)).errors for ear, said in heard.items()},
        tuple(reference[place] for place in sorted(left_out)),
        tuple(reference[place] for place in sorted(missed - left_out)),
        tuple(
            word.text
            for word in words
            if _letters(word.text) >= FEWEST_LETTERS and word.end - word.start < SHORTEST_SECONDS - 1e-6
        ),
        _twice(set(reference), list(differences_by_ear.values())),
    )


def _twice(reference: set[str], differences_by_ear: Sequence[Differences]) -> tuple[str, ...]:
    added = [Counter(each.added) for each in differences_by_ear]
    return tuple(sorted(word for word in reference if all(count[word] for count in added)))


def _letters(word: str) -> int:
    return sum(letter.isalpha() for letter in word)


@dataclass(frozen=True)
class RepliesQuality:
    """One voice with one seed."""

    voice: str
    seed: int
    replies: list[Reply]

    @property
    def lost(self) -> list[Reply]:
        return [reply for reply in self.replies if reply.lost]

    @property
    def twice(self) -> list[Reply]:
        return [reply for reply in self.replies if reply.said_twice]

    @property
    def errors(self) -> Mapping[str, WordErrors]:
        """By ear."""
        errors_by_ear: dict[str, WordErrors] = {}
        for reply in self.replies:
            for ear, errors in reply.errors.items():
                errors_by_ear[ear] = errors_by_ear.get(ear, WordErrors()) + errors
        return errors_by_ear

    @property
    def word_error_rate(self) -> float:
        """Of the ear that understands most."""
        return min((errors.rate for errors in self.errors.values()), default=0.0)


@dataclass(frozen=True)
class RateLimit:
    """The largest word error rate of a voice and seed, by its best ear: `fixed`, or a point above
    that of recordings of the same texts where this is more. recorded: theirs, None without any.
    Rates are compared as they are printed, to a hundredth of a percent.
    """

    fixed: float = 0.03
    recorded: float | None = None

    @property
    def largest(self) -> float:
        return max(self.fixed, 0.0 if self.recorded is None else self.recorded + ABOVE_RECORDED)

    def verdicts(self, results: Sequence[RepliesQuality]) -> str:
        """The limit and where it comes from; then a line for each voice and seed."""
        known = (
            "no recordings of the same texts to compare with"
            if self.recorded is None
            else f"the recordings have {100 * self.recorded:.2f} %"
        )
        lines = [f"word error rate by the better ear, at most {100 * self.largest:.2f} % ({known}):"]
        for quality in results:
            verdict = "beyond" if self._beyond(quality) else "within"
            rate = f"{100 * quality.word_error_rate:.2f} %"
            lines.append(f"  {quality.voice}, seed {quality.seed}: {rate}, {verdict}")
        return "\n".join(lines)

    def exceeded(self, quality: RepliesQuality) -> list[str]:
        """As `RepliesLimits.exceeded`."""
        if not self._beyond(quality):
            return []
        return [
            f"{quality.voice}, seed {quality.seed}: word error rate of the replies "
            f"{round(quality.word_error_rate, 4):g}, at most {round(self.largest, 4):g} allowed"
        ]

    def _beyond(self, quality: RepliesQuality) -> bool:
        return round(quality.word_error_rate, 4) > round(self.largest, 4)


@dataclass(frozen=True)
class RepliesLimits:
    """None: not asked for. lost, twice: replies of one voice and seed."""

    lost: int | None = None
    twice: int | None = None
    word_error_rate: RateLimit | None = None

    def exceeded(self, quality: RepliesQuality) -> list[str]:
        """A line for each limit that is not kept."""
        checks = (
            ("replies with lost words", len(quality.lost), self.lost),
            ("replies with words said twice", len(quality.twice), self.twice),
        )
        lines = [
            f"{quality.voice}, seed {quality.seed}: {name} {measured}, at most {limit} allowed"
            for name, measured, limit in checks
            if limit is not None and measured > limit
        ]
        return lines + (self.word_error_rate.exceeded(quality) if self.word_error_rate else [])


def as_table(results: Sequence[RepliesQuality]) -> str:
    """A row for each voice and seed; then the replies in which words were lost, added or misheard
    by every ear.
    """
    ears = list(dict.fromkeys(ear for quality in results for ear in quality.errors))
    lines = [_COLUMNS + "".join(f"{'WER ' + ear:>13}" for ear in ears)]
    for quality in results:
        counts = (
            f"{quality.voice:<24}{quality.seed:>5}{len(quality.replies):>9}{len(quality.lost):>12}"
            f"{sum(bool(reply.too_short) for reply in quality.replies):>11}{len(quality.twice):>12}"
            f"{sum(bool(reply.misheard) for reply in quality.replies):>10}"
        )
        lines.append(
            counts + "".join(f"{100 * quality.errors[ear].rate:>11.2f} %" for ear in ears if ear in quality.errors)
        )
    for quality in results:
        lines += [
            f"  {quality.voice}, seed {quality.seed}, {_line(reply)}" for reply in quality.replies if reply.remarkable
        ]
    return "\n".join(lines)


def as_json(results: Sequence[RepliesQuality], exceeded: Sequence[str], limit: RateLimit) -> dict[str, Any]:
    """Everything, reply by reply."""
    return {
        "ok": not exceeded,
        "exceeded": list(exceeded),
        "largest_word_error_rate": limit.largest,
        "recorded_word_error_rate": limit.recorded,
        "runs": [
            asdict(quality)
            | {
                "lost": len(quality.lost),
                "twice": len(quality.twice),
                "word_error_rate": {ear: errors.rate for ear, errors in quality.errors.items()},
            }
            for quality in results
        ],
    }


def _line(reply: Reply) -> str:
    what = {
        "left out": reply.left_out,
        "too short": reply.too_short,
        "twice": reply.said_twice,
        "misheard": reply.misheard,
    }
    summary = "; ".join(f"{name}: {', '.join(words)}" for name, words in what.items() if words)
    return f"{reply.number:03d} {summary}\n      said:  {reply.text}\n      heard: {' | '.join(reply.heard.values())}"
