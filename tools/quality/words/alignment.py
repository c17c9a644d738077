"""Which words were said wrong, added or left out: the cheapest alignment of what was heard with
what was to be said.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tools.quality.words.alignment import same_sound

_GO_BACK = {
    "insertion": (0, 1),
    "deletion": (1, 0),
    "match": (1, 1),
    "substitution": (1, 1),
    "apart": (1, 2),
    "together": (2, 1),
}
"""How many words of the reference and of what was heard each step takes; in the order in which
steps of equal cost are preferred from the end, so that a text that went on or stopped shows it at
its end."""


@dataclass(frozen=True)
class WordErrors:
    """Counts of one or several alignments. words: of the reference."""

    words: int = 0
    substitutions: int = 0
    insertions: int = 0
    deletions: int = 0

    def __add__(self, other: "WordErrors") -> "WordErrors":
        return WordErrors(
            self.words + other.words,
            self.substitutions + other.substitutions,
            self.insertions + other.insertions,
            self.deletions + other.deletions,
        )

    @property
    def errors(self) -> int:
        return self.substitutions + self.insertions + self.deletions

    @property
    def rate(self) -> float:
        """Word error rate: errors per word of the reference. Over 1 is possible."""
        return self.errors / max(self.words, 1)


@dataclass(frozen=True)
class Alignment:
    """One sentence. added_at_end, missing_at_end: how many insertions, or deletions, stand after
    the last word that was aligned.
    """

    errors: WordErrors
    added_at_end: int
    missing_at_end: int


@dataclass(frozen=True)
class Differences:
    """Of one text. left_out, misheard: places of words of the reference that stand for nothing that
    was heard, or for another word. added: what was heard that stands for nothing of the reference.
    """

    left_out: frozenset[int]
    misheard: frozenset[int]
    added: tuple[str, ...]


def differences(reference: Sequence[str], heard: Sequence[str]) -> Differences:
    """Which words the alignment of `align` counts."""
    left_out, misheard, added, i, j = set(), set(), [], 0, 0
    for step in reversed(_steps(reference, heard)):
        if step == "deletion":
            left_out.add(i)
        elif step == "substitution":
            misheard.add(i)
        elif step == "insertion":
            added.append(heard[j])
        i, j = i + _GO_BACK[step][0], j + _GO_BACK[step][1]
    return Differences(frozenset(left_out), frozenset(misheard), tuple(added))


def align(reference: Sequence[str], heard: Sequence[str]) -> Alignment:
    """The alignment of the fewest substitutions, insertions and deletions (Levenshtein distance on
    words).

    Where one word of either side equals two of the other written together ("someone", "some one")
    there is no error.
    """
    steps = _steps(reference, heard)
    at_end = next((place for place, step in enumerate(steps) if step not in ("insertion", "deletion")), len(steps))
    errors = WordErrors(len(reference), steps.count("substitution"), steps.count("insertion"), steps.count("deletion"))
    return Alignment(errors, steps[:at_end].count("insertion"), steps[:at_end].count("deletion"))


def _steps(reference: Sequence[str], heard: Sequence[str]) -> list[str]:
    """The names of the steps, the last one first."""
    cost: dict[tuple[int, int], int] = {(0, 0): 0}
    best: dict[tuple[int, int], str] = {}
    for i in range(len(reference) + 1):
        for j in range(len(heard) + 1):
            if i or j:
                ways = {
                    step: cost[i - back[0], j - back[1]] + (step in ("insertion", "deletion", "substitution"))
                    for step, back in _GO_BACK.items()
                    if back[0] <= i and back[1] <= j and _fits(step, reference[i - back[0] : i], heard[j - back[1] : j])
                }
                best[i, j] = min(ways, key=ways.__getitem__)
                cost[i, j] = ways[best[i, j]]
    i, j = len(reference), len(heard)
    steps = []
    while i or j:
        step = best[i, j]
        steps.append(step)
        i, j = i - _GO_BACK[step][0], j - _GO_BACK[step][1]
    return steps


def _fits(step: str, reference: Sequence[str], heard: Sequence[str]) -> bool:
    if step in ("insertion", "deletion", "substitution"):
        return True
    return same_sound(*reference, *heard) if step == "match" else "".join(reference) == "".join(heard)
