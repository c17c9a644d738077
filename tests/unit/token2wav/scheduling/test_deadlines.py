"""Which streams the next step takes: by deadline, by the cost of a step of that size, and without
making promised audio late.
"""

import pytest

from services.token2wav.scheduling.measurements import StepCosts, bucket
from services.token2wav.scheduling.next_step import PendingBlocks, admitted

SEEN = {1: 0.015, 2: 0.018, 4: 0.025, 8: 0.032, 16: 0.046, 32: 0.076}
NOW = 100.0


def costs(times: int = 1) -> StepCosts:
    seen = StepCosts()
    for blocks, seconds in SEEN.items():
        seen.add(blocks, times * seconds)
    return seen


def first(waits: float = 0.0) -> PendingBlocks:
    return PendingBlocks(1, NOW + 0.2 - waits, playing=False)


def playing(left: float, blocks: int = 1) -> PendingBlocks:
    return PendingBlocks(blocks, NOW + left, playing=True)


CROWD = [playing(2.0) for _ in range(20)]


@pytest.mark.parametrize(
    ("dues", "widest", "times", "count"),
    [
        pytest.param([first(), *[playing(2.0 + at) for at in range(20)]], 32, 1, 1, id="players with plenty wait"),
        *(
            pytest.param([*[first() for _ in range(firsts)], *CROWD], 32, 1, together, id=f"filled up to {together}")
            for firsts, together in ((1, 1), (3, 4), (5, 8), (9, 16))
        ),
        pytest.param([first(), playing(0.08), playing(2.0)], 32, 1, 2, id="a player about to run dry goes too"),
        # With 220 ms left one player can wait for another step, the last of forty cannot.
        pytest.param([first(), playing(0.22)], 32, 1, 1, id="one player can wait"),
        pytest.param([first(), *[playing(0.22) for _ in range(40)]], 32, 1, 32, id="many players cannot"),
        pytest.param(CROWD, 32, 1, 20, id="without hurry all that fit go together"),
        pytest.param(CROWD, 8, 1, 8, id="at most the widest step"),
        pytest.param([playing(0.01, 4), playing(2.0, 4), playing(2.0)], 32, 1, 1, id="several blocks of one stream"),
        pytest.param([playing(0.01, 16), playing(2.0)], 1, 1, 1, id="more blocks than the widest step"),
        # Twice as slow, a step of 16 takes 92 ms, and 8 are the most that stay below 80; forty
        # players that short steps would let run dry take the widest.
        pytest.param([first() for _ in range(40)], 32, 2, 8, id="steps stay short"),
        pytest.param([first() for _ in range(80)], 32, 2, 32, id="a crowd is served sooner by wide steps"),
        pytest.param([playing(0.2) for _ in range(40)], 32, 2, 32, id="promised audio would be late"),
        pytest.param([playing(0.001) for _ in range(40)], 32, 2, 8, id="promised audio is late anyway"),
        pytest.param([PendingBlocks(16, NOW, playing=False), first()], 8, 1, 1, id="the oldest is never too much"),
    ],
)
def test_what_the_next_step_takes(dues: list[PendingBlocks], widest: int, times: int, count: int) -> None:
    assert admitted(sorted(dues, key=lambda due: due.by), NOW, costs(times), widest) == count


def test_steps_stay_wide_where_narrow_ones_take_as_long() -> None:
    """As with an engine whose launches take the time, on a GPU or on one that is slower than those
    that were measured.
    """
    flat = StepCosts()
    for blocks in SEEN:
        flat.add(blocks, 0.39)
    assert admitted([first() for _ in range(16)], NOW, flat, 16) == 16


def test_a_width_without_measurements_is_tried() -> None:
    seen = StepCosts()
    seen.add(1, 0.39)
    assert admitted([first() for _ in range(8)], NOW, seen, 16) == 8


def test_a_step_of_unknown_size_is_guessed_from_its_neighbours() -> None:
    seen = StepCosts()
    for seconds in (0.9, 0.010, 0.011, 0.012):
        seen.add(2, seconds)
    assert seen.typical(2) == 0.012
    assert seen.typical(1) == 0.012
    assert seen.typical(16) == pytest.approx(0.012 * 1.4**3)
    assert seen.slow(2) == 0.9
    assert [bucket(blocks) for blocks in (1, 2, 3, 9, 32)] == [1, 2, 4, 16, 32]
