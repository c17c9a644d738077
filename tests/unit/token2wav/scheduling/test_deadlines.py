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


def taken(dues: list[PendingBlocks], widest: int = 32, times: int = 1) -> int:
    return admitted(sorted(dues, key=lambda due: due.by), NOW, costs(times), widest)


def test_a_first_sound_goes_without_those_whose_players_have_plenty() -> None:
    assert taken([first(), *[playing(2.0 + at) for at in range(20)]]) == 1


@pytest.mark.parametrize(("firsts", "together"), [(1, 1), (3, 4), (5, 8), (9, 16)])
def test_the_rest_of_a_batch_that_costs_the_same_is_filled_up(firsts: int, together: int) -> None:
    assert taken([*[first() for _ in range(firsts)], *[playing(2.0) for _ in range(20)]]) == together


def test_a_player_that_is_about_to_run_dry_goes_with_first_sounds() -> None:
    assert taken([first(), playing(0.08), playing(2.0)]) == 2


def test_many_players_press_sooner_than_few() -> None:
    """With 220 ms left one player can wait for another step, the last of forty cannot."""
    assert taken([first(), playing(0.22)]) == 1
    assert taken([first(), *[playing(0.22) for _ in range(40)]]) == 32


def test_without_hurry_all_that_fit_go_together() -> None:
    assert taken([playing(2.0) for _ in range(20)]) == 20
    assert taken([playing(2.0) for _ in range(20)], widest=8) == 8


def test_several_blocks_of_one_stream_count() -> None:
    assert taken([playing(0.01, blocks=4), playing(2.0, blocks=4), playing(2.0)]) == 1
    assert taken([playing(0.01, blocks=16), playing(2.0)], widest=1) == 1


def test_steps_stay_short_until_promised_audio_would_be_late() -> None:
    """Twice as slow, a step of 16 takes 92 ms, and 8 are the most that stay below 80; forty players
    that short steps would let run dry take the widest."""
    assert taken([first() for _ in range(40)], times=2) == 8
    assert taken([first() for _ in range(80)], times=2) == 32, "a crowd is served sooner so"
    assert taken([playing(0.2) for _ in range(40)], times=2) == 32
    assert taken([playing(0.001) for _ in range(40)], times=2) == 8


def test_steps_stay_wide_where_narrow_ones_take_as_long() -> None:
    """As with an engine whose launches take the time, on a GPU or on one that is slower than those
    that were measured.
    """
    flat = StepCosts()
    for blocks in SEEN:
        flat.add(blocks, 0.39)
    assert admitted([first() for _ in range(16)], NOW, flat, 16) == 16


def test_a_width_that_nobody_has_seen_is_tried() -> None:
    seen = StepCosts()
    seen.add(1, 0.39)
    assert admitted([first() for _ in range(8)], NOW, seen, 16) == 8


def test_the_oldest_work_is_never_too_much() -> None:
    assert taken([PendingBlocks(16, NOW, playing=False), first()], widest=8) == 1


def test_a_step_of_unknown_size_is_guessed_from_its_neighbours() -> None:
    seen = StepCosts()
    for seconds in (0.9, 0.010, 0.011, 0.012):
        seen.add(2, seconds)
    assert seen.typical(2) == 0.012
    assert seen.typical(1) == 0.012
    assert seen.typical(16) == pytest.approx(0.012 * 1.4**3)
    assert seen.slow(2) == 0.9
    assert [bucket(blocks) for blocks in (1, 2, 3, 9, 32)] == [1, 2, 4, 16, 32]
