"""Words that are spoken twice are detected by the gain of a step back in the text."""

import itertools

import numpy as np
import pytest

from cosyserve.errors import Repeated
from services.llm.guards.alignment import MOST_SKIPPED, AlignmentTable
from services.llm.guards.repetition import FEWEST_IDS, require_no_repetition, step_back_gain
from tests.unit.llm.guards.test_alignment import VOCABULARY, score, table

IDS, TOKENS = 6, 6


def in_parts(of: AlignmentTable, ids: list[int], tokens: list[int], places: tuple[int, ...], back: int) -> float:
    """The score of a path that goes back behind token `back`: of its two parts, less what the first
    one's end and the second one's beginning leave unsaid."""
    first, second = places[: back + 1], places[back + 1 :]
    unsaid = sum(float(of.skip[each]) for each in ids[first[-1] + 1 :]) + sum(
        float(of.skip[each]) for each in ids[: second[0]]
    )
    return score(of, ids, tokens[: back + 1], first) + score(of, ids, tokens[back + 1 :], second) - unsaid


def rises(places: tuple[int, ...]) -> bool:
    return all(0 <= after - before <= MOST_SKIPPED + 1 for before, after in itertools.pairwise(places))


@pytest.mark.parametrize("seed", range(6))
def test_the_gain_is_that_of_the_best_of_all_steps(seed: int) -> None:
    chance, of = np.random.default_rng(seed), table(seed)
    ids, tokens = chance.integers(0, VOCABULARY, IDS).tolist(), chance.integers(0, 6561, TOKENS).tolist()
    ways = [
        way
        for way in itertools.product(range(IDS), repeat=TOKENS)
        if way[0] <= MOST_SKIPPED and way[-1] >= IDS - 1 - MOST_SKIPPED
    ]
    plain = max(score(of, ids, tokens, way) for way in ways if rises(way))
    again = max(
        in_parts(of, ids, tokens, way, back)
        for way in ways
        for back in range(TOKENS - 1)
        if way[back] - way[back + 1] >= FEWEST_IDS - 1 and rises(way[: back + 1]) and rises(way[back + 1 :])
    )
    assert step_back_gain(of, tuple(ids), tokens) == pytest.approx(again - plain, abs=1e-4)


def sharp() -> AlignmentTable:
    """Each id looks like one token; two tokens of each are likely, none is not."""
    digits = np.full((VOCABULARY, 8, 3), 0.02)
    for each in range(VOCABULARY):
        digits[each, range(8), digits_of_id(each)] = 0.96
    half, rare = np.full(VOCABULARY, 0.5), np.full(VOCABULARY, 0.001)
    return AlignmentTable(*(np.log(part).astype(np.float32) for part in (digits, half, half, rare)))


def digits_of_id(each: int) -> list[int]:
    return [each // 3, *[each % 3] * 7]


def token(each: int) -> int:
    return sum(digit * 3**place for place, digit in enumerate(digits_of_id(each)))


def test_words_said_twice_fail_and_once_do_not() -> None:
    ids = (0, 1, 2, 3, 4, 5)
    once = [token(each) for each in ids for _ in range(2)]
    twice = [token(each) for each in (0, 1, 2, 3, 4, 1, 2, 3, 4, 5) for _ in range(2)]
    require_no_repetition(sharp(), ids, once)
    with pytest.raises(Repeated, match="20 speech tokens"):
        require_no_repetition(sharp(), ids, twice)
    require_no_repetition(sharp(), (0, 1, 2, 3, 4, 1, 2, 3, 4, 5), twice)


def test_a_long_vowel_is_no_repetition() -> None:
    require_no_repetition(
        sharp(), (0, 1, 2, 3, 4, 5), [token(each) for each in (0, 1, 2, 3, 4, 5) for _ in range(1 + 20 * (each == 2))]
    )


def test_what_is_too_short_has_no_gain() -> None:
    assert step_back_gain(table(), (1,) * (FEWEST_IDS - 1), [1, 2, 3]) == -np.inf
    assert step_back_gain(table(), (1,) * FEWEST_IDS, [1]) == -np.inf
    assert step_back_gain(table(), (1,) * 30, [1, 2]) == -np.inf
