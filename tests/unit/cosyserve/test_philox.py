"""Counter-based random numbers: the published known answers, and independence of how they are asked
for.
"""

import numpy as np
import pytest

from cosyserve.philox import normal, philox4x32, uniform

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (ONES << 32 | ONES, (ONES,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        # Digits of pi: counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0.
        (
            0x299F31D0 << 32 | 0xA4093822,
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers(key: int, counter: tuple[int, ...], words: tuple[int, ...]) -> None:
    """Vectors of Random123's kat_vectors, philox4x32 with 10 rounds."""
    assert tuple(philox4x32(key, np.array(counter, dtype=np.uint64)).tolist()) == words


def test_many_counters_are_each_their_own() -> None:
    counters = np.random.default_rng(1).integers(0, 1 << 32, size=(3, 5, 4), dtype=np.uint64)
    together = philox4x32(99, counters)
    for place in np.ndindex(3, 5):
        assert np.array_equal(together[place], philox4x32(99, counters[place]))


@pytest.mark.parametrize(
    ("key", "stream", "step", "draw"),
    [(0, 0, 0, 0), ((1 << 64) - 1, ONES, ONES, ONES), (0x299F31D0A4093822, 7, 4095, 1)],
)
def test_uniform_is_the_words_of_its_counter(key: int, stream: int, step: int, draw: int) -> None:
    first, second, _, _ = (int(word) for word in philox4x32(key, np.array([draw, step, stream, 0], dtype=np.uint64)))
    assert uniform(key, stream, step, draw) == (first * 2**21 + second // 2**11) / 2**53


@pytest.mark.parametrize("first", [0, 1_000, (1 << 32) - 3])
def test_a_slice_of_rows_is_those_rows(first: int) -> None:
    whole = normal(7, 2, first, 10, 9)
    assert whole.shape == (10, 9)
    assert np.array_equal(normal(7, 2, first + 4, 3, 9), whole[4:7])
    assert np.array_equal(normal(7, 2, first, 10, 4), whole[:, :4])


def test_normal_is_standard_and_finite() -> None:
    draws = normal(3, 0, 0, 20_000, 8)
    assert draws.dtype == np.float32
    assert np.isfinite(draws).all()
    assert np.abs(draws.mean(axis=0)).max() < 0.03
    assert np.abs(draws.var(axis=0) - 1).max() < 0.05
    assert np.abs(np.corrcoef(draws.T) - np.eye(8)).max() < 0.03


def test_uniform_depends_on_every_name_and_stays_below_one() -> None:
    base = uniform(1, 2, 3, 4)
    assert base == uniform(1, 2, 3, 4)
    assert base not in {
        uniform(0, 2, 3, 4),
        uniform(1, 0, 3, 4),
        uniform(1, 2, 0, 4),
        uniform(1, 2, 3, 0),
        uniform(1 | 1 << 40, 2, 3, 4),
    }
    draws = [uniform(5, 0, step, 0) for step in range(4000)]
    assert 0.0 <= min(draws) < max(draws) < 1.0
    assert abs(float(np.mean(draws)) - 0.5) < 0.02
