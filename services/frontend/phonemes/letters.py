"""Letter-to-sound: the pronunciation of a word that no lexicon has.

A joint n-gram model (Bisani and Ney, "Joint-sequence models for grapheme-to-phoneme conversion", 2008): a word is a sequence of pairs, each
one letter with the phones it stands for (none, or several), and the likeliest sequence that spells the word is found by beam search.

`phonemes/letters.tsv.gz`: a line for each pair, `letter TAB phones` (numbered from 1 in the order of the file; pair 0 stands around the
word), an empty line, and a line for each n-gram, ordered so that it can be told by what it shares with the line before:
`shared TAB pairs TAB cost TAB back-off cost`: the number of pairs shared, the further pairs in base 36 with blanks between them, the cost
of the last pair behind the others, and the cost of falling back from the n-gram as a history (may be empty: 0). Costs are whole numbers of
1/16 nat.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosyserve.errors import ModelError
from services.frontend.phonemes.lexicon import read_table, write_table
from services.frontend.phonemes.symbols import PRIMARY, is_pronunciation

COSTS_PER_NAT = 16
BEAM = 12
_EDGE = chr(0)
_NO_STRESS = 40 * COSTS_PER_NAT
"""Cost of a word without main stress: taken only where the letters leave nothing else."""
_UNSEEN = 20 * COSTS_PER_NAT


@dataclass(frozen=True)
class NGrams:
    """An n-gram model of pairs. Pairs are characters: `chr(0)` the edge of a word, `chr(n)` pair n.

    pairs: (letter, phones) by number, from 1; costs: of the last character of each string behind the others; fall_back: of giving up the
    string as a history.
    """

    pairs: Sequence[tuple[str, str]]
    costs: Mapping[str, int]
    fall_back: Mapping[str, int]


class LetterModel:
    """Immutable, usable from any thread."""

    def __init__(self, model: NGrams) -> None:
        self._costs = model.costs
        self._fall_back = model.fall_back
        self._longest = max(map(len, model.costs), default=1)
        self._choices: dict[str, list[tuple[str, str, bool]]] = {}
        for number, (letter, phones) in enumerate(model.pairs, start=1):
            self._choices.setdefault(letter, []).append((chr(number), phones, PRIMARY in phones))

    def pronounce(self, word: str) -> str:
        """The likeliest pronunciation of a lower-case word, with one main stress where it can have one. Time grows with its length.

        Characters that the model does not know are passed over; empty when it knows none.
        """
        # (cost, history, phones, whether the main stress is placed)
        beam = [(0, _EDGE, "", False)]
        for letter in word:
            choices = self._choices.get(letter)
            if choices is None:
                continue
            best: dict[tuple[str, bool], tuple[int, str, str, bool]] = {}
            for cost, history, phones, stressed in beam:
                for pair, sound, stress in choices:
                    if stress and stressed:
                        continue
                    total = cost + self._cost(history, pair)
                    kept = (history + pair)[1 - self._longest :]
                    key = (kept, stressed or stress)
                    if key not in best or total < best[key][0]:
                        best[key] = (total, kept, phones + sound, stressed or stress)
            beam = sorted(best.values())[:BEAM]
        ended = [(cost + self._cost(history, _EDGE) + (0 if stressed else _NO_STRESS), phones) for cost, history, phones, stressed in beam]
        return min(ended)[1]

    def _cost(self, history: str, pair: str) -> int:
        cost = 0
        while True:
            found = self._costs.get(history + pair)
            if found is not None:
                return cost + found
            if not history:
                return cost + _UNSEEN
            cost += self._fall_back.get(history, 0)
            history = history[1:]


def read_letters(path: Path) -> LetterModel:
    """Raises ModelError naming the file and the line when it is unreadable or malformed."""
    lines = read_table(path)
    pairs: list[tuple[str, str]] = []
    for line in lines:
        if not line:
            break
        letter, _, phones = line.partition("\t")
        if len(letter) != 1 or not (phones == "" or is_pronunciation(phones)):
            raise ModelError(f"{path}: line {len(pairs) + 1} is not a letter with its phones")
        pairs.append((letter, phones))
    costs: dict[str, int] = {}
    fall_back: dict[str, int] = {}
    before = ""
    for number, line in enumerate(lines[len(pairs) + 1 :], start=len(pairs) + 2):
        try:
            shared, further, cost, back = line.split("\t")
            gram = before[: int(shared)] + "".join([chr(int(pair, 36)) for pair in further.split(" ")])
            if not all(ord(pair) <= len(pairs) for pair in gram):
                raise ValueError("pair out of range")
            costs[gram] = int(cost)
            if back:
                fall_back[gram] = int(back)
        except (ValueError, OverflowError) as error:
            raise ModelError(f"{path}: line {number} is not an n-gram: {error}") from error
        before = gram
    if not pairs or not costs:
        raise ModelError(f"{path}: holds no model")
    return LetterModel(NGrams(pairs, costs, fall_back))


def write_letters(path: Path, model: NGrams) -> None:
    """Write the file that `read_letters` reads; the same model always gives the same bytes."""
    lines = [f"{letter}\t{phones}" for letter, phones in model.pairs]
    lines.append("")
    before = ""
    for gram in sorted(model.costs):
        shared = _shared(before, gram)
        back = model.fall_back.get(gram, 0)
        lines.append(f"{shared}\t{' '.join(_base36(ord(pair)) for pair in gram[shared:])}\t{model.costs[gram]}\t{back or ''}")
        before = gram
    write_table(path, lines)


def _shared(one: str, other: str) -> int:
    return next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _base36(value: int) -> str:
    digits = ""
    while True:
        value, digit = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
        if not value:
            return digits
