"""Training of the letter-to-sound model on a lexicon.

1. Alignment: each letter of a word stands for none to three phones. What stands for what is learnt by hard EM: align every word as likely
   as the counts so far make it, count again.
2. n-grams of (letter, phones) pairs with interpolated absolute discounting (Kneser-Ney counts below the highest order), stored as a
   back-off model; rare n-grams of high order are left out, which is what keeps the file small.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tqdm import tqdm

from services.frontend.phonemes.letters import COSTS_PER_NAT, NGrams
from services.frontend.phonemes.symbols import STRESS

ORDER = 7
FEWEST = {4: 2, 5: 2, 6: 2, 7: 3}
"""By order: how often an n-gram must occur to be kept."""
DISCOUNTS = {1: 0.5, 2: 0.7}
DISCOUNT = 0.85
MOST_PHONES = 3
ALIGNED_WORDS = 25_000
ROUNDS = 5
_START_COSTS = (3.0, 4.0, 8.0, 14.0)
_EDGE = chr(0)
_UNSTRESSED = str.maketrans("", "", STRESS)

Alignment = list[tuple[str, str]]


def train(lexicon: Mapping[str, str]) -> NGrams:
    """The model of all plain words of `lexicon` (word to pronunciation)."""
    words = [(word, split_phones(sound)) for word, sound in sorted(lexicon.items()) if is_plain(word)]
    costs = learn_costs(words[:: max(1, len(words) // ALIGNED_WORDS)])
    alignments = [align(word, phones, costs) for word, phones in tqdm(words, desc="letters to sounds", unit=" words", leave=False)]
    return count([alignment for alignment in alignments if alignment is not None])


def is_plain(word: str) -> bool:
    """Whether a word teaches how letters sound: lower case, of three to twenty letters."""
    return word.isalpha() and word.islower() and 3 <= len(word) <= 20


def split_phones(pronunciation: str) -> list[str]:
    """Phones, each with the stress mark in front of it."""
    phones: list[str] = []
    stress = ""
    for symbol in pronunciation:
        if symbol in STRESS:
            stress = symbol
        else:
            phones.append(stress + symbol)
            stress = ""
    return phones


Costs = dict[tuple[str, str], float]


def learn_costs(words: Sequence[tuple[str, list[str]]]) -> Costs:
    """Cost (negative log likelihood) of each letter for each sequence of phones that it stands for, stress apart."""
    costs: Costs = {}
    for _ in tqdm(range(ROUNDS), desc="aligning", leave=False):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, phones in words:
            for letter, sound in align(word, phones, costs) or ():
                pairs[letter, sound.translate(_UNSTRESSED)] += 1
        totals: Counter[str] = Counter()
        for (letter, _sound), number in pairs.items():
            totals[letter] += number
        costs = {pair: -math.log(number / totals[pair[0]]) for pair, number in pairs.items() if number > 1}
    return costs


def align(word: str, phones: Sequence[str], costs: Costs) -> Alignment | None:
    """The cheapest way to give every letter its phones; None when there are more phones than the letters can stand for."""
    plain = [phone.translate(_UNSTRESSED) for phone in phones]
    sounds = [
        ["".join(plain[start : start + length]) for length in range(min(MOST_PHONES, len(plain) - start) + 1)]
        for start in range(len(plain) + 1)
    ]
    best: dict[int, float] = {0: 0.0}
    steps: list[dict[int, int]] = []
    for place, letter in enumerate(word):
        following: dict[int, float] = {}
        taken: dict[int, int] = {}
        left = len(word) - place - 1
        for start, cost in best.items():
            for length, sound in enumerate(sounds[start]):
                end = start + length
                if len(plain) - end > MOST_PHONES * left:
                    continue
                total = cost + costs.get((letter, sound), _START_COSTS[length] + 4.0 * bool(costs))
                if total < following.get(end, math.inf):
                    following[end] = total
                    taken[end] = length
        best = following
        steps.append(taken)
    if len(plain) not in best:
        return None
    alignment: Alignment = []
    end = len(plain)
    for letter, taken in zip(reversed(word), reversed(steps), strict=True):
        start = end - taken[end]
        alignment.append((letter, "".join(phones[start:end])))
        end = start
    return alignment[::-1]


def count(alignments: Iterable[Alignment], order: int = ORDER) -> NGrams:
    """The n-gram model of aligned words."""
    sequences = list(alignments)
    frequency = Counter(pair for sequence in sequences for pair in sequence)
    # A pair that occurs once is a misalignment or a freak of spelling.
    pairs = [pair for pair, number in sorted(frequency.items()) if number > 2]
    number_of = {pair: chr(place) for place, pair in enumerate(pairs, start=1)}
    counts: list[Counter[str]] = [Counter() for _ in range(order + 1)]
    for sequence in sequences:
        if all(pair in number_of for pair in sequence):
            text = _EDGE + "".join(number_of[pair] for pair in sequence) + _EDGE
            for end in range(2, len(text) + 1):
                counts[min(order, end)][text[max(0, end - order) : end]] += 1
    _continue_counts(counts)
    return NGrams(pairs, *_back_off(counts, order))


def _continue_counts(counts: list[Counter[str]]) -> None:
    """Kneser-Ney: below the highest order an n-gram counts once for every different pair in front of it. What begins a word has nothing in
    front and keeps its own count."""
    for length in range(len(counts) - 1, 1, -1):
        shorter = counts[length - 1]
        for gram in counts[length]:
            shorter[gram[1:]] += 1


def _back_off(counts: Sequence[Counter[str]], order: int) -> tuple[dict[str, int], dict[str, int]]:
    """Costs of n-grams, and of giving up a history."""
    costs: dict[str, int] = {}
    fall_back: dict[str, int] = {}
    probability: dict[str, float] = {}
    for length in range(1, order + 1):
        totals: defaultdict[str, int] = defaultdict(int)
        for gram, number in counts[length].items():
            totals[gram[:-1]] += number
        kept = {gram: number for gram, number in counts[length].items() if number >= FEWEST.get(length, 1)}
        given: defaultdict[str, float] = defaultdict(float)
        for gram, number in kept.items():
            given[gram[:-1]] += (number - DISCOUNTS.get(number, DISCOUNT)) / totals[gram[:-1]]
        for history, share in given.items():
            if history:
                fall_back[history] = _cost(1.0 - share)
        for gram, number in kept.items():
            history = gram[:-1]
            lower = _lower(gram[1:], probability, fall_back) if length > 1 else 1.0 / len(counts[1])
            own = (number - DISCOUNTS.get(number, DISCOUNT)) / totals[history]
            probability[gram] = own + (1.0 - given[history]) * lower
            costs[gram] = _cost(probability[gram])
    return costs, {history: cost for history, cost in fall_back.items() if history in costs}


def _lower(gram: str, probability: Mapping[str, float], fall_back: Mapping[str, int]) -> float:
    scale = 1.0
    while gram not in probability:
        scale *= math.exp(-fall_back.get(gram[:-1], 0) / COSTS_PER_NAT)
        gram = gram[1:]
        if not gram:
            return 1e-9
    return scale * probability[gram]


def _cost(probability: float) -> int:
    return round(-COSTS_PER_NAT * math.log(max(probability, 1e-9)))
