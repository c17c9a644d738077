"""Letter-to-sound: the pronunciation of a word that is not in the lexicon.

A joint n-gram model (Bisani and Ney, "Joint-sequence models for grapheme-to-phoneme conversion",
2008): a word is a sequence of pairs, each of one letter and its phones (none, or several), and beam
search finds the most likely sequence that spells the word.

`phonemes/letters.tsv.gz`: a line for each pair, `letter TAB phones`; an empty line; then a line for
each history that the model knows, `shared TAB history TAB back-off cost TAB pairs TAB costs`. A
history begins with its last pair; its first `shared` characters are those of the line before and
left out. Pair n of the file (from 1) is written as the character U+0100 + n, the edge of a word as
U+0100, a cost as the character U+0021 + cost; costs are negative log likelihoods in steps of 1/6
nat, 93 at most.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from cosyserve.errors import ModelError
from services.frontend.tokenizers.phonemes.lexicon import read_table, write_table
from services.frontend.tokenizers.phonemes.symbols import PRIMARY, is_pronunciation

COSTS_PER_NAT = 6
LARGEST_COST = 93
EDGE = "\u0100"
BEAM = 32
_ZERO_COST = 0x21
_REMEMBERED = 1 << 14
_SHARED = {str(length) for length in range(100)}
_NO_STRESS = 40 * COSTS_PER_NAT
"""Penalty of a word without main stress: chosen only when the letters allow nothing else."""
_PRUNING_MARGIN = 8 * COSTS_PER_NAT
"""How much more than the best hypothesis another may cost before it is pruned."""


class Row(NamedTuple):
    """The entries of the model for one history: strings as in the file."""

    fall_back: str
    pairs: str
    costs: str


@dataclass(frozen=True)
class NGrams:
    """An n-gram model: the pairs (letter, phones) in order, and a row for each history, including
    the empty one.
    """

    pairs: Sequence[tuple[str, str]]
    rows: Mapping[str, Row]


class _Hypothesis(NamedTuple):
    """A hypothesis: the pronunciation of the first letters of a word."""

    cost: int
    history: str
    phones: str
    stressed: bool


class LetterModel:
    """Immutable and thread-safe."""

    def __init__(self, model: NGrams) -> None:
        self._rows = model.rows
        self._longest = max(map(len, model.rows))
        self._choices: dict[str, dict[str, str]] = {EDGE: {EDGE: ""}}
        for number, (letter, phones) in enumerate(model.pairs):
            self._choices.setdefault(letter, {})[pair_character(number)] = phones
        self._costs = lru_cache(maxsize=_REMEMBERED)(self._costs_after)

    def pronounce(self, word: str) -> str:
        """The most likely pronunciation of a lower-case word, with one main stress where possible.
        Linear in its length.

        Letters that the model does not know are skipped; empty when it knows none.
        """
        beam = [_Hypothesis(0, EDGE, "", False)]
        for letter in word:
            if letter in self._choices:
                beam = self._next(beam, letter)
        return min((hypothesis.cost + self._end(hypothesis), hypothesis.phones) for hypothesis in beam)[1]

    def _next(self, beam: Sequence[_Hypothesis], letter: str) -> list[_Hypothesis]:
        best: dict[tuple[str, bool], _Hypothesis] = {}
        choices = self._choices[letter]
        for hypothesis in beam:
            for pair, cost in self._costs(hypothesis.history, letter).items():
                phones = choices[pair]
                stress = PRIMARY in phones
                if stress and hypothesis.stressed:
                    continue
                history = self._known_part(hypothesis.history + pair)
                key = (history, hypothesis.stressed or stress)
                if key not in best or hypothesis.cost + cost < best[key].cost:
                    best[key] = _Hypothesis(hypothesis.cost + cost, history, hypothesis.phones + phones, key[1])
        if not best:
            return list(beam)
        hypotheses = sorted(best.values())[:BEAM]
        return [hypothesis for hypothesis in hypotheses if hypothesis.cost <= hypotheses[0].cost + _PRUNING_MARGIN]

    def _known_part(self, history: str) -> str:
        """The part of `history` that makes a difference: hypotheses that agree in it are
        equivalent.
        """
        history = history[-self._longest :]
        while history not in self._rows:
            history = history[1:]
        return history

    def _end(self, hypothesis: _Hypothesis) -> int:
        return self._costs(hypothesis.history, EDGE).get(EDGE, LARGEST_COST) + (
            0 if hypothesis.stressed else _NO_STRESS
        )

    def _costs_after(self, history: str, letter: str) -> dict[str, int]:
        """The cost of each pair of `letter` after `history`, by the longest history that knows the
        pair.
        """
        row = self._rows.get(history)
        shorter = self._costs(history[1:], letter) if history else {}
        if row is None:
            return shorter
        costs = {pair: ord(row.fall_back) - _ZERO_COST + cost for pair, cost in shorter.items()}
        choices = self._choices[letter]
        costs.update(
            (pair, ord(cost) - _ZERO_COST) for pair, cost in zip(row.pairs, row.costs, strict=True) if pair in choices
        )
        return costs


def pair_character(number: int) -> str:
    """The character of pair `number`, counted from 0."""
    return chr(ord(EDGE) + 1 + number)


def cost_character(nats: float) -> str:
    """The character of a cost, limited to the largest one."""
    return chr(_ZERO_COST + min(LARGEST_COST, round(nats * COSTS_PER_NAT)))


def read_letters(path: Path) -> LetterModel:
    """Read the model. Raises ModelError naming the file and the line when it is unreadable or
    malformed.
    """
    lines = read_table(path)
    count = next((place for place, line in enumerate(lines) if not line), len(lines))
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(lines[:count], start=1):
        letter, _, phones = line.partition("\t")
        if len(letter) != 1 or not (phones == "" or is_pronunciation(phones)):
            raise ModelError(f"{path}: line {number} is not a letter with its phones")
        pairs.append((letter, phones))
    rows: dict[str, Row] = {}
    backwards = ""
    for number, line in enumerate(lines[count + 1 :], start=count + 2):
        shared, *fields = line.split("\t")
        if shared not in _SHARED or len(fields) != 4 or not _is_row(*fields[1:]):
            raise ModelError(f"{path}: line {number} is not a history with its pairs and costs")
        backwards = backwards[: int(shared)] + fields[0]
        rows[backwards[::-1]] = Row(*fields[1:])
    if not pairs or "" not in rows:
        raise ModelError(f"{path}: holds no model")
    return LetterModel(NGrams(pairs, rows))


def write_letters(path: Path, model: NGrams) -> None:
    """Write the file that `read_letters` reads; the same model always gives the same bytes."""
    lines = [f"{letter}\t{phones}" for letter, phones in model.pairs]
    lines.append("")
    before = ""
    for backwards in sorted(history[::-1] for history in model.rows):
        shared = len(os.path.commonprefix([before, backwards]))  # noqa: RUF071 - characters are what is shared
        lines.append("\t".join((str(shared), backwards[shared:], *model.rows[backwards[::-1]])))
        before = backwards
    write_table(path, lines)


def _is_row(fall_back: str, pairs: str, costs: str) -> bool:
    return len(fall_back) == 1 and len(pairs) == len(costs) and (fall_back + costs).isascii()
