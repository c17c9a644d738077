"""Where the cuts fall, and prompts that are trimmed for an early first hop."""

import numpy as np
import pytest

from cosyserve.errors import SettingsError
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.generation import Generation
from cosyserve.generations.prompt_cut import LEAST_PROMPT_TOKENS
from services.token2wav.inputs.chunking import (
    Grid,
    Hop,
    check_first_hop,
    next_border,
    schedule,
    trim_prompt,
)
from services.token2wav.inputs.request import Growth, Hops, Profile, Voice
from tests.unit.token2wav.speaking import TINY

EXPONENTIAL = Growth.EXPONENTIAL


def ends(profile: Profile, prompt: int, total: int, hops: Hops | None = None, step: int = 1) -> list[int]:
    """Ends of all hops when tokens arrive `step` at a time."""
    plan, last, made = schedule(profile, prompt, hops or Hops()), None, []
    for have in [*range(0, total, step), total]:
        finished = have == total
        while (last is None or not last.final) and (hop := plan.next(last, have, finished)):
            assert hop.start == (last.end if last else 0)
            assert hop.final or have >= hop.end + 3
            last = hop
            made.append(hop.end)
    assert last.final
    return made


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize(
    ("prompt", "hops", "expected"),
    [
        (0, Hops(), [25, 50, 75, 101]),
        (20, Hops(), [5, 30, 55, 80, 101]),
        (25, Hops(), [25, 50, 75, 101]),
        (30, Hops(first_hop_tokens=20), [20, 45, 70, 95, 101]),
        (30, Hops(first_hop_tokens=21), [45, 70, 95, 101]),
        (20, Hops(growth=EXPONENTIAL), [5, 30, 80, 101]),
        (0, Hops(first_hop_tokens=100), [101]),
        (0, Hops(growth=EXPONENTIAL, max_hop_tokens=49), [25, 50, 75, 101]),
    ],
)
def test_continuous(prompt: int, hops: Hops, expected: list[int], step: int) -> None:
    assert ends(Profile.CONTINUOUS, prompt, 101, hops, step) == expected


def test_growth_stops_at_the_longest_hop_in_whole_blocks() -> None:
    made = ends(Profile.CONTINUOUS, 0, 1000, Hops(growth=EXPONENTIAL, max_hop_tokens=140))
    assert np.diff([0, *made]).tolist() == [25, 25, 50, 100, 125, 125, 125, 125, 125, 125, 50]


@pytest.mark.parametrize("total", [1, 24, 25, 26, 27, 28, 29])
def test_a_hop_needs_its_look_ahead_and_the_tail_joins_the_hop_before_it(total: int) -> None:
    assert ends(Profile.CONTINUOUS, 0, total) == ([25, total] if total >= 28 else [total])


@pytest.mark.parametrize("step", [1, 13, 1000])
def test_upstream_makes_the_calls_that_the_reference_made(step: int) -> None:
    golden = np.load(TINY / "flow_mel.npz")
    calls = [
        {name: golden[f"call{i}_{name}"].item() for name in ("n_tokens", "token_offset", "finalize")}
        for i in range(golden["n_calls"])
    ]
    plan, last, made = schedule(Profile.UPSTREAM, 20, Hops()), None, []
    for have in [*range(0, 101, step), 101]:
        while (last is None or not last.final) and (hop := plan.next(last, have, have == 101)):
            last = hop
            made.append(
                {"n_tokens": hop.end + (0 if hop.final else 3), "token_offset": hop.start, "finalize": hop.final}
            )
    assert made == calls


def test_upstream_hops_double_to_one_hundred() -> None:
    assert ends(Profile.UPSTREAM, 24, 600) == [26, 76, 176, 276, 376, 476, 576, 600]


def test_offline_is_one_hop_when_all_tokens_are_there() -> None:
    plan = schedule(Profile.OFFLINE, 20, Hops())
    assert [plan.next(None, 101, finished) for finished in (False, True)] == [None, Hop(0, 0, 101, final=True)]


def test_blocks_end_on_the_grid() -> None:
    assert [next_border(0, 60), next_border(25, 60), next_border(50, 60), next_border(7, 20)] == [25, 50, 60, 20]


def test_the_grid_of_a_prompt_as_one_block_starts_behind_it() -> None:
    grid = Grid(37, whole_prompt=True)
    assert [grid.next_border(at, 100) for at in (0, 37, 40, 62, 87)] == [37, 62, 62, 87, 100]
    assert (grid.last_border(), grid.last_border(1), grid.frames_to_border()) == (37, 37, 0)
    assert [grid.lookahead(at) for at in (37, 62)] == [slice(0, 3), slice(62, 65)]
    assert Grid(2, whole_prompt=True).lookahead(2) == slice(0, 2)
    for profile in (Profile.CONTINUOUS, Profile.UPSTREAM):
        plan, hop, ends = schedule(profile, 37, Hops(), whole_prompt=True), None, []
        while hop is None or not hop.final:
            hop = plan.next(hop, 101, finished=True)
            ends.append(hop.end)
        assert ends == [25, 50, 75, 101]
    assert plan.needed(None) == 28
    assert [plan.blocks(*span) for span in ((0, 37), (37, 62), (0, 62), (40, 41), (37, 138))] == [2, 1, 3, 1, 5]


def test_the_grid_of_other_flows_starts_with_the_prompt() -> None:
    grid = Grid(37)
    assert [grid.next_border(at, 100) for at in (0, 25, 37, 75)] == [25, 50, 50, 100]
    assert (grid.last_border(), grid.last_border(13), grid.frames_to_border()) == (25, 25, 26)
    assert grid.lookahead(37) == slice(37, 40)


def voice(tokens: int) -> Voice:
    mel = np.arange(2 * tokens, dtype=np.float32)[:, None].repeat(80, 1)
    return Voice(np.arange(tokens), mel, np.ones(192, np.float32), "key")


@pytest.mark.parametrize("first_hop", [11, 15, 25])
def test_the_first_hop_has_the_length_that_was_asked_for(first_hop: int) -> None:
    for prompt in range(LEAST_PROMPT_TOKENS + 24, LEAST_PROMPT_TOKENS + 60):
        cut = trim_prompt(voice(prompt), first_hop)
        hop = schedule(Profile.CONTINUOUS, len(cut.tokens), Hops()).next(None, 100, finished=False)
        assert hop.end == first_hop
        assert 0 <= prompt - len(cut.tokens) < 25


def test_it_is_the_start_that_goes_and_tokens_and_mel_go_together() -> None:
    whole, cut = voice(87), trim_prompt(voice(87), 15)
    np.testing.assert_array_equal(cut.tokens, whole.tokens[2:])
    np.testing.assert_array_equal(cut.mel, whole.mel[4:])
    assert cut.state_key != whole.state_key


def test_a_short_prompt_and_no_wish_leave_it_as_it_is() -> None:
    for prompt, wish in ((0, 15), (1, 15), (30, 15), (50, 15), (51, 15), (87, 0)):
        whole = voice(prompt)
        assert trim_prompt(whole, wish) is whole


@pytest.mark.parametrize(
    ("generation", "allowed", "refused"),
    [(COSYVOICE2, (0, 11, 25), (1, 10, 26, -1)), (COSYVOICE3, (0, 3, 11, 25), (1, 2, 26, -1))],
)
def test_hops_that_give_no_sound_or_no_block_are_refused(
    generation: Generation, allowed: tuple[int, ...], refused: tuple[int, ...]
) -> None:
    for tokens in allowed:
        check_first_hop(tokens, generation.hold_back_tokens)
    for tokens in refused:
        with pytest.raises(SettingsError, match=f"is {tokens}; .* else {allowed[1]} to 25 is allowed"):
            check_first_hop(tokens, generation.hold_back_tokens)
