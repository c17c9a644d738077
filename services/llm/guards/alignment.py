"""Alignment of speech tokens to text ids: a monotonic Viterbi alignment over a table that a model
directory may contain.

`alignment.npz` holds, for each text id, the distribution of its speech tokens and of its duration,
as natural logarithms:

    digits float32 [text vocabulary, 8, 3]   probability of each value of each of a token's eight
                                             ternary digits (FSQ)
    stay   float32 [text vocabulary]         that the next token belongs to the same id
    leave  float32 [text vocabulary]         that it does not
    skip   float32 [text vocabulary]         that no token belongs to the id: a stress mark, a
                                             blank without a pause

The search is exact (no beam) and uses no network. Published model directories have no such table.
Viterbi: Forney, "The Viterbi Algorithm", 1973.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import ModelError
from cosyserve.spec import SPEECH_VOCABULARY

FILE = "alignment.npz"
DIGITS, LEVELS = 8, 3
MOST_SKIPPED = 4
"""Most ids in a row without a token: a mark, a blank, a stress mark and one sound."""
Floats = NDArray[np.float32]


def digits_of(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """[n] speech tokens -> [n, 8] ternary digits, the lowest first."""
    return tokens[:, None] // LEVELS ** np.arange(DIGITS) % LEVELS


@dataclass(frozen=True)
class AlignmentTable:
    """Immutable; arrays as in the file."""

    digits: Floats
    stay: Floats
    leave: Floats
    skip: Floats

    @classmethod
    def read(cls, path: Path, text_vocabulary: int) -> "AlignmentTable":
        """Raises ModelError naming the file when it is malformed or belongs to another text
        vocabulary.
        """
        shapes = {"digits": (text_vocabulary, DIGITS, LEVELS)} | dict.fromkeys(
            ("stay", "leave", "skip"), (text_vocabulary,)
        )
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                arrays_by_name = {name: np.asarray(arrays[name], np.float32) for name in shapes}
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise ModelError(f"{path}: not a readable alignment table: {error}") from error
        for name, shape in shapes.items():
            if arrays_by_name[name].shape != shape:
                raise ModelError(f"{path}: {name} has shape {arrays_by_name[name].shape}, expected {shape}")
            if not np.isfinite(arrays_by_name[name]).all():
                raise ModelError(f"{path}: {name} holds values that are not finite")
        return cls(**arrays_by_name)

    def starts(self, text_ids: tuple[int, ...], tokens: list[int]) -> list[int] | None:
        """For each text id the index of the speech token at which it begins, ascending; an id
        without a token begins with the next id that has one, or at the end. None when there are too
        few tokens for any path.
        """
        ids = np.asarray(text_ids, np.int64)
        speech = np.asarray(tokens, np.int64)
        if not len(ids) or not len(speech) or speech.min() < 0 or speech.max() >= SPEECH_VOCABULARY:
            return None
        return _path(self.scores(ids, speech), self.stay[ids], self.leave[ids], self.skip[ids])

    def scores(self, ids: NDArray[np.int64], tokens: NDArray[np.int64]) -> Floats:
        """[tokens, ids] log probabilities."""
        token_digits = digits_of(tokens)
        table = self.digits[ids]
        return np.asarray(sum(table[:, digit, token_digits[:, digit]] for digit in range(DIGITS)), np.float32).T


def _path(scores: Floats, stay: Floats, leave: Floats, skip: Floats) -> list[int] | None:
    times, states = scores.shape
    # skipped[j] - skipped[i + 1]: the cost of a step from i to j without a token for the ids
    # between.
    skipped = np.concatenate(([0.0], np.cumsum(skip)))
    best = np.full(states, -np.inf)
    first = min(MOST_SKIPPED + 1, states)
    best[:first] = skipped[:first]
    best += scores[0]
    moves = np.zeros((times, states), np.int8)
    for time in range(1, times):
        choices = np.full((MOST_SKIPPED + 2, states), -np.inf)
        choices[0] = best + stay
        for step in range(1, min(MOST_SKIPPED + 1, states - 1) + 1):
            begin = best[:-step] + leave[:-step]
            choices[step, step:] = begin + skipped[step:-1] - skipped[1 : states - step + 1]
        moves[time] = choices.argmax(axis=0)
        best = choices.max(axis=0) + scores[time]
    tail = np.asarray([skipped[-1] - skipped[state + 1] for state in range(states)])
    ends = np.where(np.arange(states) >= states - 1 - MOST_SKIPPED, best + leave + tail, -np.inf)
    state = int(ends.argmax())
    return _starts(moves, state, states) if np.isfinite(ends[state]) else None


def _starts(moves: "NDArray[np.int8]", state: int, states: int) -> list[int]:
    """Trace back along `moves` [tokens, ids] from the last id that has a token."""
    starts = [moves.shape[0]] * states
    for time in range(moves.shape[0] - 1, -1, -1):
        starts[state] = time
        state -= int(moves[time, state])
    for place in range(states - 2, -1, -1):
        starts[place] = min(starts[place], starts[place + 1])
    return starts
