"""Pages of streams whose prompt is one block and whose past is bounded, with a flow that only
records what each page holds: every sample identifies all that its block may see.
"""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.errors import Overloaded
from services.token2wav.decoders.interface import BoundsItsState, Decoded, StepInput, takes_prompt_whole
from services.token2wav.gpu.decoder import PagedDecoder
from services.token2wav.gpu.paged_flow.unit_table import Unit
from services.token2wav.gpu.stream_state import PagedState
from services.token2wav.gpu.stream_units import StreamUnits
from services.token2wav.inputs.chunking import Schedule
from services.token2wav.inputs.request import Profile, Sentence
from services.token2wav.scheduling.memory_budget import Budget, Limits
from services.token2wav.scheduling.stream_slot import StreamSlot
from tests.unit.token2wav.gpu.test_paged_decoder import RememberingFlow, RememberingVocoder, Setup, some
from tests.unit.token2wav.speaking import batching, speak, tokens, voice

FRONTS = 3
"""Pages in front of the estimator for which a page has room."""


def mel_of(token: int, before: Sequence[int], seen: Sequence[int], ahead: Sequence[int]) -> float:
    """For a token of a block: all tokens up to the end of the block, those that the estimator sees,
    and the look-ahead.
    """
    return (token + sum(before) + 3 * sum(seen) + 7 * sum(ahead)) % 99991 / 2048


class WindowedFlow(RememberingFlow):
    """Pages of both kinds hold their block's tokens; all of a pass are written before one is
    read.
    """

    def __init__(self, pages: int) -> None:
        super().__init__(pages, most=12)
        self.fronts: dict[int, list[int]] = {}
        self.passes: list[int] = []

    def scratch_front_pages(self, count: int) -> list[int]:
        return list(range(100, 100 + count))

    def run(self, units: Sequence[Unit], contents: dict[int, list[int]] | None = None) -> Tensor:
        kept, fronts = (self.contents, self.fronts) if contents is None else (contents, {})
        made = torch.full((len(units), 50, 80), 1e6)
        for unit in units:
            assert unit.front_pages is not None
            kept[unit.pages[unit.own]] = fronts[unit.front_pages[unit.own]] = unit.tokens.tolist()
        for at, unit in enumerate(units):
            assert unit.front_pages is not None
            seen = [token for page in unit.pages for token in kept[page]]
            before = [token for page in unit.front_pages for token in fronts[page]]
            # What a unit inside the prompt sees ahead it also sees by itself; none of them speaks.
            values = [mel_of(token, before, seen, unit.ahead.tolist()) for token in unit.tokens.tolist()]
            made[at, unit.frames] = torch.tensor(values).repeat_interleave(2)[:, None]
        if contents is None:
            self.passes.append(len(units))
        return made

    def recompute(self, units: Sequence[Unit]) -> Tensor:
        return self.run(units, {})


class BoundedSetup(Setup):
    flow: WindowedFlow

    def __init__(self, pages: int = 60, prompt_pages: int = 10) -> None:
        self.flow, self.vocoder = WindowedFlow(pages), RememberingVocoder()
        self.decoder = PagedDecoder(
            self.flow, self.vocoder, pages=pages, slots=20, widest_step=8, prompt_pages=prompt_pages, fronts=FRONTS
        )  # type: ignore[arg-type]

    def say(self, states: list[PagedState], tokens: list[NDArray[np.int64]], *, far: bool = False) -> None:
        """Every stream to its end, a block or as much as goes in each step, and gets its own."""
        made: list[list[NDArray[np.float32]]] = [[] for _ in states]
        todo = list(range(len(states)))
        while todo:
            inputs = []
            for at in todo:
                state, end = states[at], len(states[at].prompt) + len(tokens[at])
                until = state.reach(end) if far else state.units.grid.next_border(state.position, end)
                inputs.append(StepInput(state, tokens[at], until, until == end))
            for at, given, result in zip(list(todo), inputs, self.decoder.step(inputs), strict=True):
                if result is None:
                    continue
                assert isinstance(result, Decoded), result
                made[at].append(result.samples)
                if given.final:
                    todo.remove(at)
        for state, said, pieces in zip(states, tokens, made, strict=True):
            np.testing.assert_array_equal(np.concatenate(pieces), spoken(state.prompt.tolist(), said.tolist()))


def spoken(prompt: list[int], tokens: list[int]) -> NDArray[np.float32]:
    """Blocks of 25 behind the prompt see it, themselves and the two before."""
    values = []
    for at, token in enumerate(tokens):
        first, end = at // 25 * 25, min(at // 25 * 25 + 25, len(tokens))
        ahead = tokens[end : end + 3] if end == first + 25 else []
        values += [mel_of(token, prompt + tokens[:end], prompt + tokens[max(first - 50, 0) : end], ahead)] * 2
    return np.repeat(np.array(values, np.float32), 480)


@pytest.mark.parametrize("far", [False, True], ids=["block by block", "as far as it goes"])
def test_every_stream_sees_its_prompt_and_newest_and_gives_all_back(far: bool) -> None:
    setup = BoundedSetup()
    lengths = [(0, 25), (87, 60), (1, 130), (24, 26), (50, 101), (3, 22), (110, 40)]
    states = [setup.start(prompt, seed=at) for at, (prompt, _) in enumerate(lengths)]
    setup.say(states, [some(count, 100 + at) for at, (_, count) in enumerate(lengths)], far=far)
    assert not any(state.recomputing for state in states)
    del states
    assert setup.all_back


def test_a_long_sentence_holds_its_prompt_two_blocks_and_what_lies_in_front() -> None:
    setup = BoundedSetup()
    state, said, held = setup.start(60), some(1000, 3), []
    for until in range(60, 1061, 25):
        setup.decoder.step([StepInput(state, said, until, until == 1060)])
        held.append(len(state.held))
    assert held[:4] == [3 + 1, 3 + 1 + 1 + 1, 3 + 2 + 1 + 1, 3 + 2 + 1 + 1]
    assert held == [3 + min(block, 2) + 1 + -(-block // FRONTS) for block in range(41)]
    assert isinstance(setup.decoder, BoundsItsState)
    assert takes_prompt_whole(setup.decoder)
    assert setup.decoder.growth_bytes(1000) == setup.flow.page_bytes * (3 + 14)


def test_a_kept_prompt_is_shared_with_what_lies_in_front() -> None:
    setup = BoundedSetup()
    first = setup.start(87, "v")
    setup.say([first], [some(30, 1)])
    assert setup.flow.passes == [4, 1, 1]
    assert (setup.decoder.prompts.states, setup.decoder.prompts.bytes) == (1, (4 + 2) * 1000)
    second = setup.start(87, "v")
    assert (second.prompt_cached, second.position, second.bytes) == (True, 87, 0)
    setup.say([second], [some(90, 2)])
    assert setup.flow.passes[3:] == [1] * 4
    assert first.of_prompt == second.of_prompt
    del first, second
    assert setup.all_back


def test_streams_of_a_voice_that_begin_together_make_its_prompt_once() -> None:
    setup = BoundedSetup()
    states = [setup.start(30, "v") for _ in range(3)]
    setup.say(states, [some(60, at) for at in range(3)])
    assert setup.flow.passes[0] == 2


def test_a_prompt_is_in_one_pass_even_where_it_is_longer_than_a_batch() -> None:
    setup = BoundedSetup()
    states = [setup.start(30), setup.start(110, seed=2), setup.start(60, seed=3)]
    setup.say(states, [some(60, at) for at in range(3)])
    assert setup.flow.passes[:3] == [2, 5, 3]


@pytest.mark.parametrize("far", [False, True], ids=["block by block", "as far as it goes"])
def test_without_room_a_sentence_is_made_again_and_sounds_the_same(far: bool) -> None:
    setup = BoundedSetup(pages=9, prompt_pages=0)
    states = [setup.start(30, seed=at) for at in range(3)]
    setup.say(states, [some(120, 10 + at) for at in range(3)], far=far)
    assert any(state.recomputing and not state.held for state in states)
    del states
    assert setup.all_back


@pytest.mark.parametrize("prompt", [0, 30, 87])
async def test_a_sentence_that_never_has_room_is_spoken_to_its_end(prompt: int) -> None:
    setup, said = BoundedSetup(pages=3, prompt_pages=0), Sentence(voice(prompt), seed=1)
    async with batching(dict.fromkeys(Profile, setup.decoder)) as batcher, asyncio.timeout(20):
        assert len(await speak(batcher, said, tokens(60))) == 2 * 60 * 960
    assert setup.decoder.recomputed >= 3


def test_while_a_long_sentence_is_made_again_it_claims_no_more_than_it_would_hold() -> None:
    setup = BoundedSetup(pages=3, prompt_pages=0)
    sentence = Sentence(voice(30))
    slot = StreamSlot(sentence, setup.decoder, Schedule(0, 0, (25,)), lambda arrival: None, reserved=0, bytes=0)
    slot.state = state = setup.start(30)
    said = some(240, 5)
    for until in (30, 55, 255):
        setup.decoder.step([StepInput(state, said, until, False)])
    assert (state.recomputing, state.position) == (True, 255)
    # Two units of prompt, three behind it, and nine in front of those, three to a page.
    expected = (2 + 1 + 3 + 3) * setup.flow.page_bytes
    budget = Budget(Limits(max_streams=9, state_bytes=expected, reserve_tokens=0))
    with pytest.raises(Overloaded, match=f"claim {expected} of {expected}"):
        budget.check_room([slot], 1)
    budget.check_room([slot], 0)


def test_several_blocks_at_once_are_made_while_half_of_the_pages_are_free() -> None:
    setup, said = BoundedSetup(pages=12, prompt_pages=0), some(150, 4)
    first = setup.start(25)
    setup.decoder.step([StepInput(first, said, 25, False)])
    assert first.reach(175) == 25 + 4 * 25
    others = [setup.start(25, seed=1 + at) for at in range(3)]
    setup.decoder.step([StepInput(other, said, 25, False) for other in others])
    assert first.reach(175) == 50


@pytest.mark.parametrize("prompt", [0, 1, 24, 25, 26, 87])
def test_only_the_first_unit_is_short_and_all_others_lie_on_the_grid_behind_the_prompt(prompt: int) -> None:
    units = StreamUnits(prompt, whole_prompt=True)
    spans = [units.tokens(at, prompt + 60) for at in range(units.count(prompt + 60))]
    assert [token for span in spans for token in span] == list(range(prompt + 60))
    assert units.end(units.of_prompt) == prompt
    assert {len(span) for span in spans[1:-1]} <= {25}
