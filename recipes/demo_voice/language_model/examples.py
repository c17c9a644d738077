"""Training sequences drawn from the material, each a sentence that no recording holds.

Spliced: utterances of one voice are cut between words and joined in new orders, so that learning
what follows which sentence by heart does not help and reading does. Concatenated: utterances one
after another under their texts one after another, which is how a voice prompt is served.
"""

from dataclasses import dataclass

import numpy as np

from recipes.demo_voice.language_model.layouts import Ids
from recipes.demo_voice.language_model.material import Cut, Material

Piece = tuple[Ids, Ids]
"""Text ids and the codes that say them."""


@dataclass(frozen=True)
class Mixture:
    """Shares of training sequences; what remains are utterances as they are. longest: text ids and
    codes of a sequence at most.
    """

    spliced: float = 0.5
    concatenated: float = 0.3
    longest: int = 680


class Examples:
    """Draws sequences of the utterances in training."""

    def __init__(self, material: Material, mixture: Mixture) -> None:
        self._material, self._mixture = material, mixture
        self._members = material.of_voice(material.training)
        can_be_cut = material.of_voice([number for number in material.training if material.cuts[number]])
        self._can_be_cut = {voice: can_be_cut.get(voice, []) for voice in self._members}

    def draw(self, rng: np.random.Generator) -> Piece:
        """Text ids and codes of one sequence, int16."""
        material, kind = self._material, rng.random()
        first = material.training[rng.integers(len(material.training))]
        voice = material.voices[first]
        pieces = [self._part(first, None, None)]
        if kind < self._mixture.spliced and self._can_be_cut[voice]:
            spliced = self._spliced(rng, voice)
            pieces = [*pieces, *spliced] if rng.random() < 0.3 else spliced
        elif kind < self._mixture.spliced + self._mixture.concatenated:
            others = self._members[voice]
            pieces += [
                self._part(others[rng.integers(len(others))], None, None) for _ in range(1 + (rng.random() < 0.25))
            ]
        while len(pieces) > 1 and sum(len(text) + len(codes) for text, codes in pieces) > self._mixture.longest:
            pieces.pop(len(pieces) // 2 if len(pieces) > 2 else 0)
        return np.concatenate([text for text, _ in pieces]), np.concatenate([codes for _, codes in pieces])

    def _spliced(self, rng: np.random.Generator, voice: str) -> list[Piece]:
        """The beginning of an utterance, middles of others now and then, the end of another."""
        members = self._can_be_cut[voice]

        def anyone() -> tuple[int, list[Cut]]:
            number = members[rng.integers(len(members))]
            return number, self._material.cuts[number]

        number, cuts = anyone()
        pieces = [self._part(number, None, cuts[rng.integers(len(cuts))])]
        for _ in range(rng.choice(4, p=[0.5, 0.25, 0.15, 0.1])):
            number, cuts = anyone()
            if len(cuts) > 1:
                begin = rng.integers(len(cuts) - 1)
                pieces.append(self._part(number, cuts[begin], cuts[rng.integers(begin + 1, len(cuts))]))
        number, cuts = anyone()
        return [*pieces, self._part(number, cuts[rng.integers(len(cuts))], None)]

    def _part(self, number: int, begin: Cut | None, end: Cut | None) -> Piece:
        text, codes = self._material.text[number], self._material.codes[number]
        if end is not None:
            text, codes = text[: end.text], codes[: end.token]
        return (text, codes) if begin is None else (text[begin.text :], codes[begin.token :])
