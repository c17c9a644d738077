"""Pages, slots and windows of many streams, with a flow and a vocoder that only record: every
sample identifies the tokens that it depends on.
"""

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.errors import NonFinite, Overloaded
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.gpu.decoder import PagedDecoder
from services.token2wav.gpu.paged_flow.page_pool import Pages
from services.token2wav.gpu.paged_flow.unit_table import Unit
from services.token2wav.gpu.stream_state import PagedState
from services.token2wav.gpu.windowed_vocoder.windows import Render
from services.token2wav.inputs.chunking import Schedule
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.scheduling.measurements import StepCosts
from services.token2wav.scheduling.memory_budget import Budget, Limits
from services.token2wav.scheduling.next_step import NextStep
from services.token2wav.scheduling.stream_slot import StreamSlot
from services.token2wav.vocoder.loading import load_vocoder
from services.token2wav.vocoder.time_stretch import MelStretch
from tests.stacks.up_process import TINY

HOLD_BACK = 20


def mel_of(ids: Sequence[int], end: int) -> list[float]:
    """The value of both frames of token `end - 1` for the tokens `ids`: it depends on all tokens
    before and on the block's look-ahead.
    """
    border = -(-end // 25) * 25
    ahead = ids[border : border + 3] if border <= len(ids) else []
    return [(sum(ids[:end]) + 7 * sum(ahead)) % 99991 / 2048] * 2


class RememberingFlow:
    """Each page contains the tokens up to its block's end."""

    def __init__(self, pages: int, most: int = 8) -> None:
        self.device, self.buckets, self.most, self.page_bytes = torch.device("cpu"), (1, 2, 4), most, 1000
        self.config = SimpleNamespace(vocabulary=6561, speaker=192)
        self.contents: dict[int, list[int]] = {}
        self.made: list[int] = []
        self.conditions: list[Tensor | None] = []
        self.broken: set[int] = set()
        self.scale = 1.0
        self.pages = pages

    def speaker(self, embedding: Tensor) -> Tensor:
        return torch.zeros(80)

    def run(self, units: Sequence[Unit], contents: dict[int, list[int]] | None = None) -> Tensor:
        assert len(units) <= max(self.buckets) or contents is not None
        kept = self.contents if contents is None else contents
        made = torch.full((len(units), 50, 80), 1e6)
        for at, unit in enumerate(units):
            before = kept[unit.pages[-2]] if len(unit.pages) > 1 else []
            assert len(before) == 25 * unit.position
            ids = before + unit.tokens.tolist()
            kept[unit.pages[-1]] = ids
            whole = ids + unit.ahead.tolist()
            values = [value for end in range(len(before) + 1, len(ids) + 1) for value in mel_of(whole, end)]
            made[at, : len(values)] = self.scale * torch.tensor(values)[:, None]
            if self.broken & set(ids):
                made[at] = float("nan")
            if contents is None:
                self.made.append(unit.position)
        return made

    def recompute(self, units: Sequence[Unit]) -> Tensor:
        assert [len(unit.pages) for unit in units] == list(range(1, len(units) + 1))
        self.conditions = [unit.condition for unit in units]
        return self.run(units, {})


class RememberingVocoder:
    """A frame's samples are its mel; checks that the frames a window needs are in the ring and
    belong to the stream. late: samples of a frame that wait for the next one.
    """

    def __init__(self, late: int = 0) -> None:
        self.late_samples = late
        self.hold_back_frames, self.buckets, self.shapes = HOLD_BACK, (1, 2, 4), {10: None, 50: None}
        self.ring: dict[tuple[int, int], tuple[int, float]] = {}

    def forget(self, slot: int) -> None:
        self.ring = {place: value for place, value in self.ring.items() if place[0] != slot}

    def write(self, slots: Sequence[int], frames: Sequence[int], mels: Sequence[Tensor]) -> None:
        for slot, first, mel in zip(slots, frames, mels, strict=True):
            assert 0 < len(mel) <= 50
            for at, row in enumerate(mel[:, 0].tolist()):
                self.ring[slot, (first + at) % 128] = (first + at, row)

    def run(self, windows: Sequence[Render], frames: int) -> Tensor:
        assert len({window.slot for window in windows}) == len(windows) <= max(self.buckets)
        samples = torch.zeros(len(windows), frames * 480 + self.late_samples)
        for at, window in enumerate(windows):
            last = window.first + window.count + (HOLD_BACK if window.end is None else 0)
            assert 0 < window.count <= frames
            assert window.end is None or last <= window.end
            for frame in range(max(window.first - 21, 0), last):
                there, value = self.ring[window.slot, frame % 128]
                assert there == frame
                if frame in range(window.first - 1, window.first + window.count):
                    begin = 480 * (frame - window.first) + self.late_samples
                    samples[at, max(begin, 0) : begin + 480] = value
        return samples


class Setup:
    def __init__(self, pages: int = 40, prompt_pages: int = 10, slots: int = 20, late: int = 0) -> None:
        self.flow, self.vocoder = RememberingFlow(pages), RememberingVocoder(late)
        self.decoder = PagedDecoder(
            self.flow, self.vocoder, pages=pages, slots=slots, widest_step=8, prompt_pages=prompt_pages
        )  # type: ignore[arg-type]

    @property
    def all_back(self) -> bool:
        """Nothing is held but kept prompts."""
        pages = self.decoder._pages
        kept = self.decoder.prompts.bytes // self.flow.page_bytes
        return (pages.free, len(self.decoder._slots._free)) == (pages.count - kept, 19)

    def start(self, prompt: int, key: str = "", speed: float = 1.0, seed: int = 1) -> PagedState:
        generator = np.random.default_rng(seed)
        mel = np.arange(160 * prompt, dtype=np.float32).reshape(2 * prompt, 80)
        voice = Voice(generator.integers(0, 6561, prompt), mel, np.ones(192, np.float32), key)
        return self.decoder.start(Sentence(voice, speed=speed))

    def speak(
        self, states: list[PagedState], tokens: list[NDArray[np.int64]], hop: int = 25
    ) -> list[list[NDArray[np.float32]]]:
        """Every stream to its end, all in each step, hops of `hop` blocks' tokens after the first
        border.
        """
        made: list[list[NDArray[np.float32]]] = [[] for _ in states]
        open_streams = list(range(len(states)))
        while open_streams:
            step_inputs = []
            for at in open_streams:
                end = len(states[at].prompt) + len(tokens[at])
                until = min(states[at].reach(end), (states[at].position // 25) * 25 + hop, end)
                step_inputs.append(StepInput(states[at], tokens[at], until, until == end))
            for at, step_input, result in zip(
                list(open_streams), step_inputs, self.decoder.step(step_inputs), strict=True
            ):
                if result is None:
                    continue
                assert isinstance(result, Decoded), result
                made[at].append(result.samples)
                if step_input.final:
                    open_streams.remove(at)
        return made

    def check(self, states: list[PagedState], tokens: list[NDArray[np.int64]], hop: int = 25) -> None:
        """Every stream gets its own samples."""
        for state, said, pieces in zip(states, tokens, self.speak(states, tokens, hop), strict=True):
            np.testing.assert_array_equal(np.concatenate(pieces), wanted(state, said))


def wanted(state: PagedState, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
    ids = [*state.prompt.tolist(), *tokens.tolist()]
    frames = [value for end in range(len(state.prompt) + 1, len(ids) + 1) for value in mel_of(ids, end)]
    return np.repeat(np.array(frames, np.float32), 480)


def some(count: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, 6561, count)


@pytest.mark.parametrize(("hop", "late"), [(25, 0), (50, 0), (400, 0), (25, 3)])
def test_every_stream_gets_its_own_samples_and_gives_all_back(hop: int, late: int) -> None:
    setup = Setup(pages=200, late=late)
    lengths = [(0, 25), (87, 60), (30, 1), (24, 26), (50, 101), (3, 22), (130, 40)]
    states = [setup.start(prompt, seed=at) for at, (prompt, _) in enumerate(lengths)]
    setup.check(states, [some(count, 100 + at) for at, (_, count) in enumerate(lengths)], hop)
    assert setup.decoder._pages.free < 199
    del states
    assert setup.all_back


def test_a_first_piece_comes_with_the_first_block_that_is_longer_than_what_is_held_back() -> None:
    setup = Setup()
    pieces = setup.speak([setup.start(87)], [some(60, 1)])[0]
    sounds = [len(piece) // 480 for piece in pieces if len(piece)]
    assert sounds == [26 - HOLD_BACK, 50, 44 + HOLD_BACK]


def test_a_kept_prompt_is_not_made_again_and_its_pages_are_shared() -> None:
    setup = Setup()
    first = setup.start(87, "v")
    setup.speak([first], [some(30, 1)])
    assert setup.flow.made == [0, 1, 2, 3, 4]
    assert (setup.decoder.prompts.states, setup.decoder.prompts.bytes) == (1, 3000)
    second = setup.start(87, "v")
    assert (second.prompt_cached, second.position, second.bytes) == (True, 75, 0)
    setup.check([second], [some(20, 2)])
    assert setup.flow.made[5:] == [3, 4]
    assert first.pages[:3] == second.pages[:3]
    del first, second
    assert (setup.decoder._pages.free, setup.decoder.prompts.hits) == (39 - 3, 1)


def test_streams_of_a_voice_that_begin_together_make_its_prompt_once() -> None:
    setup = Setup()
    states = [setup.start(87, "v") for _ in range(3)]
    results = setup.decoder.step([StepInput(state, some(30, 1), 75, final=False) for state in states])
    assert all(isinstance(result, Decoded) for result in results)
    assert setup.flow.made == [0, 1, 2]
    setup.check(states, [some(30, at) for at in range(3)])


def test_without_room_a_sentence_is_made_again_and_sounds_the_same() -> None:
    setup = Setup(pages=6, prompt_pages=0)
    states = [setup.start(30, seed=at) for at in range(3)]
    setup.check(states, [some(70, 10 + at) for at in range(3)])
    assert setup.decoder.recomputed > 0
    assert any(state.recomputing and not state.pages for state in states)
    del states
    assert setup.all_back


def test_a_stream_from_a_kept_prompt_is_made_again_in_its_own_voice() -> None:
    setup = Setup(pages=6)
    setup.speak([setup.start(87, "v")], [some(1, 1)])
    state = setup.start(87, "v")
    assert state.prompt_cached
    setup.check([state], [some(100, 2)])
    assert state.recomputing
    *voiced, silent = setup.flow.conditions[:5]
    spoken = np.zeros((200, 80), np.float32)
    spoken[:174] = np.arange(174 * 80).reshape(174, 80)
    np.testing.assert_array_equal(torch.cat([each for each in voiced if each is not None]).numpy(), spoken)
    assert silent is None


def test_a_kept_prompt_makes_room_for_a_stream() -> None:
    setup = Setup(pages=8, prompt_pages=6)
    setup.speak([setup.start(130, "v")], [some(1, 1)])
    assert (setup.decoder.prompts.states, setup.decoder._pages.free) == (1, 2)
    state = setup.start(0)
    setup.check([state], [some(100, 2)])
    assert (setup.decoder.prompts.evictions, state.recomputing) == (1, False)


def test_a_kept_prompt_stays_where_its_pages_would_not_be_room_enough() -> None:
    setup = Setup(pages=8, prompt_pages=6)
    setup.speak([setup.start(130, "v")], [some(1, 1)])
    speaking, state = setup.start(130, "v"), setup.start(0)
    setup.check([state], [some(100, 2)])
    assert (state.recomputing, setup.decoder.prompts.evictions, speaking.position) == (True, 0, 125)


def test_a_start_that_fails_leaves_nothing_taken() -> None:
    setup = Setup()
    setup.flow.speaker = Mock(side_effect=RuntimeError("out of memory"))  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        setup.start(30, "v")
    assert setup.all_back


def test_a_state_that_the_collector_frees_while_pages_are_taken_gives_its_own_back() -> None:
    pages = Pages(4)
    mine = pages.take(2)

    def release_inside() -> None:
        with pages._lock:
            pages.release(mine)

    given = threading.Thread(target=release_inside, daemon=True)
    given.start()
    given.join(5)
    assert (given.is_alive(), pages.free) == (False, 3)


def test_a_sentence_too_long_to_be_made_again_is_refused_and_no_other() -> None:
    setup = Setup(pages=3, prompt_pages=0)
    long, short = setup.start(0), setup.start(0)
    results = setup.decoder.step([StepInput(long, some(300, 1), 225, False), StepInput(short, some(30, 2), 25, False)])
    assert [type(result) for result in results] == [Overloaded, Decoded]


def test_numbers_that_are_none_end_their_stream_and_are_not_kept() -> None:
    setup = Setup()
    bad, follower, good = setup.start(87, "v"), setup.start(87, "v"), setup.start(0)
    setup.flow.broken = {int(bad.prompt[40])} - set(some(25, 2).tolist())
    results = setup.decoder.step(
        [
            StepInput(bad, some(30, 1), 75, False),
            StepInput(follower, some(30, 3), 75, False),
            StepInput(good, some(60, 2), 25, False),
        ]
    )
    assert [type(result) for result in results] == [NonFinite, NonFinite, Decoded]
    assert (setup.flow.made, setup.decoder.prompts.states) == ([0, 1, 2, 0], 0)


def test_a_cancelled_stream_is_left_out() -> None:
    setup = Setup()
    gone, there = setup.start(0), setup.start(0)
    gone.cancel()
    results = setup.decoder.step([StepInput(gone, some(60, 1), 25, False), StepInput(there, some(60, 2), 25, False)])
    assert [type(result) for result in results] == [type(None), Decoded]
    assert setup.flow.made == [0]


@pytest.mark.parametrize("speed", [1.0, 0.8])
def test_the_readable_vocoder_sounds_as_of_the_whole_sentence(speed: float) -> None:
    setup = Setup()
    vocoder = load_vocoder(ModelDirectory(TINY), torch.device("cpu"))
    setup.decoder = PagedDecoder(setup.flow, vocoder, pages=40, slots=20, widest_step=8, prompt_pages=5)  # type: ignore[arg-type]
    setup.flow.scale = 1e-4
    states, said = [setup.start(30, speed=speed), setup.start(0, speed=speed, seed=2)], [some(51, 1), some(40, 2)]
    for state, tokens, pieces in zip(states, said, setup.speak(states, said), strict=True):
        mel = torch.from_numpy(wanted(state, tokens)[::480] * 1e-4)[None].expand(80, -1).contiguous()
        whole = vocoder.offline(MelStretch(speed).step(mel, final=True), state.seed, state.sentence)
        np.testing.assert_allclose(np.concatenate(pieces), whole.numpy(), rtol=0, atol=2e-5)


def test_another_speed_has_its_own_frames() -> None:
    setup = Setup()
    for speed in (0.5, 0.8, 2.0):
        pieces = setup.speak([setup.start(10, speed=speed)], [some(100, 3)])[0]
        assert sum(len(piece) for piece in pieces) == 480 * int(200 / speed)


def test_a_prompt_that_left_the_cache_counts_with_those_who_speak_from_it_in_equal_parts() -> None:
    setup = Setup(prompt_pages=3)
    setup.speak([setup.start(87, "v")], [some(1, 1)])
    first, second = setup.start(87, "v"), setup.start(87, "v", seed=1)
    assert (first.bytes, second.bytes, setup.decoder.prompts.bytes) == (0, 0, 3000)
    setup.speak([setup.start(87, "w", seed=2)], [some(1, 1)])
    assert (first.bytes, second.bytes, setup.decoder.prompts.bytes) == (1500, 1500, 3000)
    del second
    assert first.bytes == 3000


def test_a_prompt_that_is_never_kept_counts_with_those_who_made_it_together() -> None:
    setup = Setup(prompt_pages=0)
    states = [setup.start(87, "v"), setup.start(87, "v")]
    setup.decoder.step([StepInput(state, some(30, at), 75, False) for at, state in enumerate(states)])
    assert [state.bytes for state in states] == [1500, 1500]
    setup.decoder.step([StepInput(state, some(30, at), 100, False) for at, state in enumerate(states)])
    assert ([state.bytes for state in states], setup.decoder._pages.free) == ([2500, 2500], 39 - 5)


def test_while_a_stream_is_made_again_nobody_takes_the_room_that_it_lacks() -> None:
    """Three pages for two streams with a reserve of two each: the stream without pages claims those
    that it would hold, so that the next one waits until one of them has ended.
    """
    setup = Setup(pages=4, prompt_pages=0)
    budget = Budget(Limits(max_streams=9, state_bytes=4000, reserve_tokens=50))
    slots = [begun(setup, Schedule(0, 0, (25,)), reserved=2000, seed=at) for at in range(2)]
    with pytest.raises(Overloaded, match="claim 4000 of 4000"):
        budget.check_room(slots, 2000)
    setup.decoder.step([StepInput(slot.state, some(60, at), 50, False) for at, slot in enumerate(slots)])
    budget.recount(slots)
    assert [slot.state.recomputing for slot in slots] == [False, True]
    assert [(slot.bytes, slot.reserved) for slot in slots] == [(2000, 2000), (0, 2000)]
    with pytest.raises(Overloaded, match="claim 4000 of 4000"):
        budget.check_room(slots, 2000)
    budget.check_room(slots[1:], 2000)
    budget.check_room(slots, 2000, follows=True)  # its request is being heard


def test_a_stream_claims_what_the_latest_sentences_took() -> None:
    setup = Setup()
    budget = Budget(Limits(max_streams=9, state_bytes=1 << 40, reserve_tokens=250))
    # A token's share of a page of 1000 bytes is 40; four seconds are supposed at first.
    assert budget.needed(500, setup.decoder) == 500 + 100 * 40
    for tokens in (1, 40, 60) * 4:
        budget.complete(tokens)
    assert budget.needed(0, setup.decoder) == 50 * 40
    for _ in range(64):
        budget.complete(1000)
    assert budget.needed(0, setup.decoder) == 250 * 40


def begun(setup: Setup, schedule: Schedule, reserved: int = 0, seed: int = 1) -> StreamSlot:
    """A stream without a prompt."""
    sentence = Sentence(Voice(np.zeros(0, np.int64), np.zeros((0, 80), np.float32), np.ones(192, np.float32)))
    slot = StreamSlot(sentence, setup.decoder, schedule, lambda arrival: None, reserved=reserved, bytes=0)
    slot.state = setup.start(0, seed=seed)
    return slot


def test_a_stream_that_is_made_again_counts_with_all_its_blocks() -> None:
    """The cost of a step is recorded by the number of blocks in it."""
    setup = Setup(pages=4, prompt_pages=0)
    step = NextStep(StepCosts(), Budget(Limits(max_streams=9, state_bytes=4000, reserve_tokens=0)), batches=True)
    slot, counted = begun(setup, Schedule(0, 1, (25,))), []
    slot.tokens = some(200, 1)
    for _ in range(5):
        (work,) = step.of([slot], 0.0)
        (made,) = setup.decoder.step([work.step_input])
        counted.append((work.pending.blocks, work.worked))
        assert slot.add(made, work.step_input.until, 0.0)
    # Three have pages; in the fourth step they are given back, and it is only then known.
    assert counted == [(1, 1), (1, 1), (1, 1), (1, 4), (5, 5)]
