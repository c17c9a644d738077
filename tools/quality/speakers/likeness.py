"""Whom does a voice made of a recording sound like: the speaker recorded, or one of the voices that
the model came with?

Asked twice, since a vocoder leaves a mark of its own, which a speaker encoder hears as well: two
speakers through the same weak vocoder can be nearer to each other than either is to its own
recording.

* `recorded`: to the recording itself, against the speech of the presets. What a listener would ask;
  hard, because only the presets share the vocoder's mark with the new voice.
* `vocoded`: to the new voice's prompt, against the prompts of the presets, all as the model's
  vocoder gives them back from their mel. What cloning itself adds, the mark being the same on all
  sides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.quality.sound.speakers import Embeddings, similarity


@dataclass(frozen=True)
class Nearness:
    """Mean cosines, 1 for the same speaker: own, to the speaker wanted; presets, to each of the
    others. nearer: in how many of the `sentences` the speaker wanted is nearer than every other."""

    own: float
    presets: dict[str, float]
    sentences: int
    nearer: int

    @property
    def nearest_preset(self) -> str:
        return max(self.presets, key=lambda name: self.presets[name])

    @property
    def is_own(self) -> bool:
        """On average nearer to the speaker wanted than to every preset."""
        return self.own > self.presets[self.nearest_preset]


@dataclass(frozen=True)
class Likeness:
    """Of one new voice. vocoded: None when no preset has a prompt. presets_to_recorded: how near
    the speech of each preset comes to the speaker recorded, which is what there is without cloning.
    """

    voice: str
    recorded: Nearness
    vocoded: Nearness | None
    presets_to_recorded: dict[str, float]


def nearness(speech: Embeddings, own: Embeddings, presets: Mapping[str, Embeddings]) -> Nearness:
    """speech: speaker embeddings [sentences, size] of what a voice said; own and each of presets:
    [n, size] of whom to compare it with; rows of length 1. Raises ValueError without a preset."""
    if not presets:
        raise ValueError("there is no voice to compare the new one with")
    nearer = [cosine(row[None], own) > max(cosine(row[None], other) for other in presets.values()) for row in speech]
    return Nearness(
        cosine(speech, own), {name: cosine(speech, other) for name, other in presets.items()}, len(speech), sum(nearer)
    )


def cosine(rows: Embeddings, others: Embeddings) -> float:
    """Mean cosine of rows to the mean of others."""
    value = similarity(rows, [], others).to_reference
    assert value is not None  # noqa: S101 - it has a reference
    return value


def as_table(likenesses: Sequence[Likeness]) -> str:
    """A block a voice."""
    return "\n".join(line for each in likenesses for line in _block(each))


def _block(each: Likeness) -> list[str]:
    lines = [each.voice, *_rows(each.recorded, "the recording", "the speech of")]
    lines += [_row(f"(the speech of {name} to the recording)", near) for name, near in each.presets_to_recorded.items()]
    if each.vocoded:
        lines += _rows(each.vocoded, "its prompt, vocoded", "the vocoded prompt of")
    return lines


def _rows(near: Nearness, own: str, other: str) -> list[str]:
    verdict = "nearest" if near.is_own else f"NOT nearest, {near.nearest_preset} is"
    first = f"{_row(f'to {own}', near.own)}  {verdict}; nearest in {near.nearer} of {near.sentences} sentences"
    return [first, *(_row(f"to {other} {name}", value) for name, value in near.presets.items())]


def _row(what: str, value: float) -> str:
    return f"  {what:<52}{value:6.3f}"
