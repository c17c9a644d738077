"""What the language model learns from: text ids and codes of every utterance, and where both can be
cut between the same two words.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recipes.demo_voice.language_model.layouts import Ids
from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.tokenizer.trained import ALIGNED, CODES, PLACES
from recipes.demo_voice.training.speech import Speech
from services.frontend.tokenizers.phonemes.symbols import BLANK, MARKS, START, read_symbols

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
        folder = work / tokenizer
        counts = [each.samples // 960 for each in speech.utterances]
        codes, places, aligned = (np.load(folder / name) for name in (CODES, PLACES, ALIGNED))
        if len(codes) != sum(counts) or len(places) != len(codes) or len(aligned) != len(counts):
            raise ValueError(
                f"{folder}: {len(codes)} codes of {len(aligned)} utterances, expected {sum(counts)} of {len(counts)}"
            )
        ends = np.cumsum(counts)[:-1]
        text = [
            np.array([symbols[symbol] for symbol in START + each.phonemes], dtype=np.int16)
            for each in speech.utterances
        ]
        blank, marks = symbols[BLANK], np.array([symbols[mark] for mark in MARKS])
        utterances = [
            find_cuts(ids, place, blank, marks) if alike else []
            for ids, place, alike in zip(text, np.split(places, ends), aligned, strict=True)
        ]
        return cls(
            text=text,
            codes=[part.astype(np.int16) for part in np.split(codes, ends)],
            phonemes=[each.phonemes for each in speech.utterances],
            cuts=utterances,
            voices=[each.voice for each in speech.utterances],
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
