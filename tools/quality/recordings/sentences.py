"""The held-out list: what is spoken, and how a short form of it is chosen.

`sentences.txt` holds 170 sentences of Mozilla Common Voice's CC0 lists and 30 from templates
(times, numbers, announcements), 4 to 20 words each, none of which any model here was trained on.
Drawn in the order of the sentences' SHA-256 within bands of length, from those whose words all
occur at least 20 times in lower case in the lists (so no names, no rare spellings), at most one of
each template; a sentence that was no plain English when read through gave its place to the next.
"""

from dataclasses import dataclass
from pathlib import Path

HELD_OUT = Path(__file__).parents[1] / "sentences.txt"


@dataclass(frozen=True)
class Sentence:
    """A line of the list. number: its line, from 1; it also names the sentence's sound file."""

    number: int
    text: str


def read_sentences(path: Path = HELD_OUT) -> list[Sentence]:
    """All sentences of a file, one a line; blank lines are left out but counted. Raises ValueError
    when there are none.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    sentences = [Sentence(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not sentences:
        raise ValueError(f"{path} holds no sentence")
    return sentences


def spread(sentences: list[Sentence], count: int | None) -> list[Sentence]:
    """`count` sentences evenly spread over the list, the first among them; all when count is None
    or no smaller than the list.

    Raises ValueError for a count below 1.
    """
    if count is None or count >= len(sentences):
        return sentences
    if count < 1:
        raise ValueError(f"{count} sentences were asked for, must be at least 1")
    return [sentences[index * len(sentences) // count] for index in range(count)]
