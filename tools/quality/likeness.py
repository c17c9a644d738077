"""Whom does a voice made of a recording sound like: the speaker recorded, or one of the voices that the model came with?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tools.quality.similarity import Embeddings, similarity


@dataclass(frozen=True)
class Likeness:
    """Mean cosines of the speech of `voice`, sentence by sentence, 1 for the same speaker. to_speaker: to the one recorded. to_presets: to
    the speech of each voice the model came with. sentences: how many were spoken, and nearer: in how many of them the speaker recorded is
    nearer than every preset. presets_to_speaker: how near the presets come to the speaker recorded without a recording.
    """

    voice: str
    to_speaker: float
    to_presets: dict[str, float]
    presets_to_speaker: dict[str, float]
    sentences: int
    nearer: int

    @property
    def nearest_preset(self) -> str:
        return max(self.to_presets, key=lambda name: self.to_presets[name])

    @property
    def is_own_speaker(self) -> bool:
        """Nearer to the speaker recorded than to every preset."""
        return self.to_speaker > self.to_presets[self.nearest_preset]


def likeness(voice: str, speech: Embeddings, recording: Embeddings, presets: Mapping[str, Embeddings]) -> Likeness:
    """speech: speaker embeddings [sentences, size] of what the new voice said, recording: [n, size] of the speaker recorded, presets: of
    what each of them said, at least one; rows of length 1. Raises ValueError without a preset."""
    if not presets:
        raise ValueError(f"the model has no voice to tell {voice} from")
    rest = list(presets.values())
    closer = [_cosine(row[None], recording) > max(_cosine(row[None], other) for other in rest) for row in speech]
    return Likeness(
        voice=voice,
        to_speaker=_cosine(speech, recording),
        to_presets={name: _cosine(speech, other) for name, other in presets.items()},
        presets_to_speaker={name: _cosine(other, recording) for name, other in presets.items()},
        sentences=len(speech),
        nearer=int(np.sum(closer)),
    )


def as_table(found: Sequence[Likeness]) -> str:
    """A block a voice."""
    return "\n".join(line for each in found for line in _block(each))


def _block(each: Likeness) -> list[str]:
    verdict = "its own speaker" if each.is_own_speaker else f"NOT its own speaker but {each.nearest_preset}"
    rows = {"to the speaker recorded": each.to_speaker} | {f"to the preset {name}": cosine for name, cosine in each.to_presets.items()}
    rows |= {f"(the preset {name} to the speaker recorded)": cosine for name, cosine in each.presets_to_speaker.items()}
    return [
        f"{each.voice}: sounds most like {verdict}; {each.nearer} of {each.sentences} sentences nearer to the speaker recorded",
        *(f"  {what:<52}{cosine:6.3f}" for what, cosine in rows.items()),
    ]


def _cosine(own: Embeddings, other: Embeddings) -> float:
    found = similarity(own, [], other).to_reference
    assert found is not None  # noqa: S101 - it has a reference
    return found
