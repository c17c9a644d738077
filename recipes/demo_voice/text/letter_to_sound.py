"""Training of the letter-to-sound model on a lexicon.

1. Alignment: each letter of a word stands for none to three phones. What stands for what is learnt
   by hard EM: align every word as likely as the counts so far make it, count again.
2. n-grams of (letter, phones) pairs with interpolated absolute discounting (Kneser-Ney counts below
   the highest order), stored as a back-off model.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tqdm import tqdm

from services.frontend.tokenizers.phonemes.letter_to_sound import EDGE, NGrams, Row, cost_character, pair_character
from services.frontend.tokenizers.phonemes.symbols import STRESS, VOWELS

ORDER = 6
WORTH = 4.0
"""An n-gram is kept when all its occurrences together are likelier by more than this many nats with
it than without: rare ones that say little are left out, which keeps the file small (Stolcke,
"Entropy-based pruning of backoff language models", 1998)."""
FEWEST_OF_PAIR = 3
DISCOUNTS = {1: 0.5, 2: 0.7}
DISCOUNT = 0.85
MOST_PHONES = 3
ALIGNED_WORDS = 25_000
ROUNDS = 5
_LENGTH_COSTS = (3.0, 4.0, 8.0, 14.0)
_UNLIKE = 3.0
"""Of a vowel letter for a consonant or the other way round, before anything is learnt."""
_UNSEEN = 4.0
_VOWEL_LETTERS = "aeiouy"
_SMALLEST = 1e-6
_UNSTRESSED = str.maketrans("", "", STRESS)

Alignment = list[tuple[str, str]]


def train(lexicon: Mapping[str, str]) -> NGrams:
    """The model of all plain words of `lexicon` (word to pronunciation)."""
    words = [(word, split_phones(sound)) for word, sound in sorted(lexicon.items()) if is_plain(word)]
    costs = learn_costs(words[:: max(1, len(words) // ALIGNED_WORDS)])
    alignments = [
        align(word, phones, costs) for word, phones in tqdm(words, desc="letters to sounds", unit=" words", leave=False)
    ]
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
    """Cost (negative log likelihood) of each letter for each sequence of phones that it stands for,
    stress apart.
    """
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
    """The cheapest way to give every letter its phones; None when there are more phones than the
    letters can stand for.
    """
    plain = [phone.translate(_UNSTRESSED) for phone in phones]
    sounds = [
        ["".join(plain[start : start + length]) for length in range(min(MOST_PHONES, len(plain) - start) + 1)]
        for start in range(len(plain) + 1)
    ]
    unseen = _UNSEEN if costs else 0.0
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
                total = cost + (
                    costs[letter, sound] if (letter, sound) in costs else _cost_of_unknown(letter, sound) + unseen
                )
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


def _cost_of_unknown(letter: str, sound: str) -> float:
    unlike = sum((phone in VOWELS) != (letter in _VOWEL_LETTERS) for phone in sound)
    return _LENGTH_COSTS[len(sound)] + _UNLIKE * unlike


def count(alignments: Iterable[Alignment], order: int = ORDER, worth: float = WORTH) -> NGrams:
    """The n-gram model of aligned words. order: pairs in an n-gram; worth: see `WORTH`."""
    sequences = list(alignments)
    frequency = Counter(pair for sequence in sequences for pair in sequence)
    # What occurs less often is a misalignment or a freak of spelling.
    pairs = [pair for pair, number in sorted(frequency.items()) if number >= FEWEST_OF_PAIR]
    character = {pair: pair_character(number) for number, pair in enumerate(pairs)}
    counts: list[Counter[str]] = [Counter() for _ in range(order + 1)]
    for sequence in sequences:
        if all(pair in character for pair in sequence):
            text = EDGE + "".join(character[pair] for pair in sequence) + EDGE
            for end in range(2, len(text) + 1):
                counts[min(order, end)][text[max(0, end - order) : end]] += 1
    _continue_counts(counts)
    return NGrams(pairs, _rows(counts, worth))


def _continue_counts(counts: list[Counter[str]]) -> None:
    """Kneser-Ney: below the highest order an n-gram counts once for every different pair in front
    of it. What begins a word has nothing in front and keeps its own count."""
    for length in range(len(counts) - 1, 1, -1):
        shorter = counts[length - 1]
        for gram in counts[length]:
            shorter[gram[1:]] += 1


def _rows(counts: Sequence[Counter[str]], worth: float) -> dict[str, Row]:
    """From the shortest to the longest n-grams: those that add enough to what is known
    without them.
    """
    likelihood: dict[str, float] = {}
    left: dict[str, float] = {}
    for length, grams in enumerate(counts[1:], start=1):
        totals: Counter[str] = Counter()
        shares: defaultdict[str, float] = defaultdict(float)
        for gram, number in grams.items():
            totals[gram[:-1]] += number
        for gram, number in grams.items():
            shares[gram[:-1]] += _discounted(number) / totals[gram[:-1]]
        rows: list[tuple[str, float, float]] = []
        for gram, number in sorted(grams.items()):
            history = gram[:-1]
            own = _discounted(number) / totals[history]
            below = _without(gram[1:], likelihood, left) if length > 1 else 1.0 / len(grams)
            shorter = max((1.0 - shares[history]) * below, _SMALLEST)
            if length < 3 or number * math.log((own + shorter) / shorter) > worth:
                rows.append((gram, own, below))
        given: defaultdict[str, float] = defaultdict(float)
        for gram, own, _below in rows:
            given[gram[:-1]] += own
        left.update((history, 1.0 - share) for history, share in given.items())
        likelihood.update((gram, own + left[gram[:-1]] * below) for gram, own, below in rows)
    candidates: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for gram, value in likelihood.items():
        candidates[gram[:-1]].append((-math.log(value), gram[-1]))
    return {
        history: Row(
            cost_character(-math.log(max(left[history], _SMALLEST))),
            "".join(pair for _, pair in sorted(row)),
            "".join(cost_character(cost) for cost, _ in sorted(row)),
        )
        for history, row in candidates.items()
    }


def _discounted(number: int) -> float:
    return number - DISCOUNTS.get(number, DISCOUNT)


def _without(gram: str, likelihood: Mapping[str, float], left: Mapping[str, float]) -> float:
    """The likelihood of the last pair of `gram` by the n-grams so far."""
    scale = 1.0
    while gram not in likelihood:
        if len(gram) == 1:
            return _SMALLEST
        scale *= left.get(gram[:-1], 1.0)
        gram = gram[1:]
    return scale * likelihood[gram]
