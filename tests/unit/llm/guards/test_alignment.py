"""Text ids and speech tokens are aligned exactly, and a table that does not fit is refused by
name.
"""

import itertools
from pathlib import Path

import numpy as np
import pytest

from cosyserve.errors import ModelError, Repeated
from services.llm.guards.alignment import FILE, MOST_SKIPPED, AlignmentTable, digits_of
from services.llm.guards.repetition import FEWEST_IDS, require_no_repetition, step_back_gain

VOCABULARY = 6


def table(seed: int = 0) -> AlignmentTable:
    chance = np.random.default_rng(seed)
    digits = chance.dirichlet(np.ones(3), (VOCABULARY, 8))
    stay, skip = chance.uniform(0.1, 0.9, VOCABULARY), chance.uniform(0.1, 0.9, VOCABULARY)
    return AlignmentTable(*(np.log(part).astype(np.float32) for part in (digits, stay, (1 - stay) * (1 - skip), skip)))


def score(of: AlignmentTable, ids: list[int], tokens: list[int], places: tuple[int, ...]) -> float:
    """The logarithm of the probability of one way to say `tokens`: the place of the id that says
    each.
    """
    seen = digits_of(np.asarray(tokens))
    total = sum(float(of.digits[ids[place], range(8), seen[at]].sum()) for at, place in enumerate(places))
    total += sum(float(of.skip[ids[place]]) for place in range(len(ids)) if place not in places)
    for here, there in itertools.pairwise(places):
        total += float(of.stay[ids[here]] if here == there else of.leave[ids[here]])
    return total + float(of.leave[ids[places[-1]]])


@pytest.mark.parametrize("seed", range(20))
def test_the_path_is_the_best_of_all(seed: int) -> None:
    chance, of = np.random.default_rng(seed), table(seed)
    ids, tokens = chance.integers(0, VOCABULARY, 5).tolist(), chance.integers(0, 6561, 6).tolist()
    ways = [way for way in itertools.product(range(5), repeat=6) if all(a <= b for a, b in itertools.pairwise(way))]
    best = max(ways, key=lambda way: score(of, ids, tokens, way))
    starts = of.starts(tuple(ids), tokens)
    assert starts == sorted(starts)
    aligned = tuple(int(place) for place in np.searchsorted(starts, np.arange(6), side="right") - 1)
    assert score(of, ids, tokens, aligned) == pytest.approx(score(of, ids, tokens, best), rel=1e-6)


def test_too_few_tokens_have_no_path() -> None:
    for ids, tokens in (((1,) * (2 * MOST_SKIPPED + 3), [0]), ((1,), []), ((), [1]), ((1, 2), [7000, 1])):
        assert table().starts(ids, tokens) is None


def test_a_single_id_begins_at_once() -> None:
    assert table().starts((3,), [5, 6, 7]) == [0]


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    of, path = table(), tmp_path / FILE
    np.savez(path, **vars(of))
    assert np.array_equal(AlignmentTable.read(path, VOCABULARY).digits, of.digits)
    with pytest.raises(ModelError, match=r"alignment\.npz: digits has shape \(6, 8, 3\), expected \(7, 8, 3\)"):
        AlignmentTable.read(path, VOCABULARY + 1)
    for message, damage in {
        r"alignment\.npz: not a readable alignment table": lambda: np.savez(path, digits=of.digits, stay=of.stay),
        "not finite": lambda: np.savez(path, **vars(of) | {"digits": of.digits * np.nan}),
        "not a readable": lambda: path.write_bytes(b"PK\x03\x04 and no more"),
    }.items():
        damage()
        with pytest.raises(ModelError, match=message):
            AlignmentTable.read(path, VOCABULARY)


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
    for ids, tokens in ((FEWEST_IDS - 1, [1, 2, 3]), (FEWEST_IDS, [1]), (30, [1, 2])):
        assert step_back_gain(table(), (1,) * ids, tokens) == -np.inf
