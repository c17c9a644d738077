"""What the language model learns from: text ids and codes of every utterance, and sequences drawn
from them, each a sentence that no recording holds.

Spliced: utterances of one voice are cut between words and joined in new orders, so that learning
what follows which sentence by heart does not help and reading does. Concatenated: utterances one
after another under their texts one after another, which is how a voice prompt is served.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recipes.demo_voice.language_model.layouts import Ids
from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.tokenizer.trained import ALIGNED, PLACES, read_codes
from recipes.demo_voice.training.speech import Speech
from services.frontend.tokenizers.phonemes.symbols import BLANK, MARKS, START, read_symbols

Piece = tuple[Ids, Ids]
"""Text ids and the codes that say them."""
LONGEST_GAP = 6
"""Tokens between two sounds at most, where words are cut apart; more is a pause, which belongs to
neither.
"""


@dataclass(frozen=True)
class Cut:
    """Between two words: text ids before `text` and codes before `token` belong to what was said
    before.
    """

    text: int
    token: int


@dataclass(frozen=True)
class Material:
    """By utterance, in the order of `Speech`.

    text: text ids, the start symbol first. codes: compact codes, 25 a second. phonemes: what is
    said. cuts: in the order of time. voices: who says it. training, held_out: numbers of
    utterances.
    """

    text: list[Ids]
    codes: list[Ids]
    phonemes: list[str]
    cuts: list[list[Cut]]
    voices: list[str]
    training: list[int]
    held_out: list[int]

    @classmethod
    def read(cls, work: Path, tokenizer: str, most_held_out: int = 256) -> "Material":
        """From the work folder, codes and alignment as the tokenizer's training left them in
        `WORK/<tokenizer>`.

        Raises ValueError when they belong to other speech.
        """
        speech = Speech.read(work, most_held_out=most_held_out, audio=False)
        symbols = read_symbols(model_directory(work).file("phonemes/symbols.json"))
        folder, utterances = work / tokenizer, speech.utterances
        codes = read_codes(folder, speech)
        places, aligned = (np.load(folder / name) for name in (PLACES, ALIGNED))
        if len(places) != len(codes) or len(aligned) != len(utterances):
            raise ValueError(
                f"{folder}: {len(places)} tokens of {len(aligned)} utterances are aligned; label them again"
            )
        text = [np.array([symbols[symbol] for symbol in START + each.phonemes], dtype=np.int16) for each in utterances]
        blank, marks = symbols[BLANK], np.array([symbols[mark] for mark in MARKS])
        cuts = [
            find_cuts(ids, place, blank, marks) if alike else []
            for ids, place, alike in zip(text, np.split(places, speech.first[1:]), aligned, strict=True)
        ]
        return cls(
            text=text,
            codes=[part.astype(np.int16) for part in np.split(codes, speech.first[1:])],
            phonemes=[each.phonemes for each in utterances],
            cuts=cuts,
            voices=[each.voice for each in utterances],
            training=speech.training,
            held_out=speech.held_out,
        )

    def of_voice(self, members: list[int]) -> dict[str, list[int]]:
        """`members` by voice."""
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for member in members:
            numbers[self.voices[member]].append(member)
        return dict(numbers)


def find_cuts(text: Ids, places: Ids, blank: int, marks: Ids) -> list[Cut]:
    """Cuts at blanks with no mark next to them, in the middle between the sounds around.

    text: text ids. places: by token, which text id sounds, -1 for none; not falling where not -1.
    """
    spoken = np.flatnonzero(places >= 0)
    sounds = places[spoken]
    blanks, marked = np.flatnonzero(text == blank), np.isin(text, marks)
    cuts = []
    for at, behind in zip(blanks.tolist(), np.searchsorted(sounds, blanks).tolist(), strict=True):
        if not 0 < behind < len(sounds):
            continue
        before, after = int(spoken[behind - 1]), int(spoken[behind])
        between = marked[int(sounds[behind - 1]) + 1 : int(sounds[behind])]
        gap = after - before - 1
        if gap <= LONGEST_GAP and not between.any():
            cuts.append(Cut(at + 1, before + 1 + gap // 2))
    return cuts


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
