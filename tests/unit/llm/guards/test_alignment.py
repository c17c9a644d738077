"""Text ids and speech tokens are aligned exactly, and a table that does not fit is refused by
name.
"""

import itertools
from pathlib import Path

import numpy as np
import pytest

from cosyserve.errors import ModelError
from services.llm.guards.alignment import FILE, MOST_SKIPPED, AlignmentTable, digits_of

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
    assert starts is not None
    assert starts == sorted(starts)
    aligned = tuple(int(place) for place in np.searchsorted(starts, np.arange(6), side="right") - 1)
    assert score(of, ids, tokens, aligned) == pytest.approx(score(of, ids, tokens, best), rel=1e-6)


def test_too_few_tokens_have_no_path() -> None:
    of = table()
    assert of.starts((1,) * (2 * MOST_SKIPPED + 3), [0]) is None
    assert of.starts((1,), []) is None
    assert of.starts((), [1]) is None
    assert of.starts((1, 2), [7000, 1]) is None


def test_a_single_id_begins_at_once() -> None:
    assert table().starts((3,), [5, 6, 7]) == [0]


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    of, path = table(), tmp_path / FILE
    np.savez(path, digits=of.digits, stay=of.stay, leave=of.leave, skip=of.skip)
    read = AlignmentTable.read(path, VOCABULARY)
    assert np.array_equal(read.digits, of.digits)
    with pytest.raises(ModelError, match=r"alignment\.npz: digits has shape \(6, 8, 3\), expected \(7, 8, 3\)"):
        AlignmentTable.read(path, VOCABULARY + 1)
    np.savez(path, digits=of.digits, stay=of.stay, leave=of.leave)
    with pytest.raises(ModelError, match=r"alignment\.npz: not a readable alignment table"):
        AlignmentTable.read(path, VOCABULARY)
    np.savez(path, digits=of.digits * np.nan, stay=of.stay, leave=of.leave, skip=of.skip)
    with pytest.raises(ModelError, match="not finite"):
        AlignmentTable.read(path, VOCABULARY)
    path.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(ModelError, match="not a readable"):
        AlignmentTable.read(path, VOCABULARY)
