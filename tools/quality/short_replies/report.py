"""The replies of all voices: a row for each voice and seed, what was remarkable, and limits."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tools.quality.short_replies.report import Reply
from tools.quality.words.alignment import WordErrors

_COLUMNS = (
    f"{'voice':<24}{'seed':>5}{'replies':>9}{'words lost':>12}{'too short':>11}{'said twice':>12}{'misheard':>10}"
)


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
class RepliesLimits:
    """None: not asked for. lost, twice: replies of one voice and seed."""

    lost: int | None = None
    twice: int | None = None
    word_error_rate: float | None = None

    def exceeded(self, quality: RepliesQuality) -> list[str]:
        """A line for each limit that is not kept."""
        checks = (
            ("replies with lost words", len(quality.lost), self.lost),
            ("replies with words said twice", len(quality.twice), self.twice),
            ("word error rate of the replies", round(quality.word_error_rate, 4), self.word_error_rate),
        )
        return [
            f"{quality.voice}, seed {quality.seed}: {name} {measured:g}, at most {limit:g} allowed"
            for name, measured, limit in checks
            if limit is not None and measured > limit
        ]


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


def as_json(results: Sequence[RepliesQuality], exceeded: Sequence[str]) -> dict[str, Any]:
    """Everything, reply by reply."""
    return {
        "ok": not exceeded,
        "exceeded": list(exceeded),
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
