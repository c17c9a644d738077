"""Work that can wait does not begin just before the tokens of a first hop are expected, and no step
waits for tokens that do not come, or with little left to play.
"""

import pytest

from services.token2wav.inputs.request import Profile, Sentence
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.hop_audio import HopAudio
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.scheduling.next_step import OVERDUE_SECONDS
from tests.unit.token2wav.speaking import voice
from tools.capacity.timing.clock import VirtualClock
from tools.capacity.timing.engines import ModelledDecoder, Times

STEP = 0.05
AHEAD = 0.06
"""Seconds from the opening of a stream to the tokens of its first hop."""
OPENS = 0.5
"""When the stream that comes later opens, at the end of a first step of the one that plays."""


class Scene:
    """One listener plays, and has a second of sound for each step; another one comes at OPENS.
    given: moments, in seconds, and tokens of the first. comes: when the tokens of the second come,
    after it has opened.
    """

    def __init__(self, given: list[tuple[float, int]], comes: float | None, *, widest_step: int = 32) -> None:
        self.clock = VirtualClock(lambda: self.batcher.close())
        decoder = ModelledDecoder(
            self.clock,
            Times(flow={32: STEP}, vocoder={32: 0.0}, host=0.0, jitter=0.0),
            lambda: False,
            widest_step,
        )
        limits = Limits(max_streams=9, state_bytes=1 << 40)
        self.batcher = Batcher({Profile.CONTINUOUS: decoder}, limits, hold_seconds=0.0, clock=self.clock)
        self.batcher._costs.add(1, STEP)
        self.playing: list[float] = []
        self.first: list[float] = []
        playing = self.batcher.open(Sentence(voice(87)), lambda arrival: self.heard(self.playing, arrival))
        self.slots = {id(self.playing): playing}
        self.clock.after(AHEAD, lambda: self.batcher.feed(playing, voice(16).tokens))
        for at, tokens in given:
            self.clock.after(at, lambda tokens=tokens: self.batcher.feed(playing, voice(tokens).tokens))  # type: ignore[misc]

        def open_late() -> None:
            slot = self.batcher.open(Sentence(voice(87)), lambda arrival: self.heard(self.first, arrival))
            self.slots[id(self.first)] = slot
            if comes is not None:
                self.clock.after(comes, lambda: self.batcher.feed(slot, voice(16).tokens))

        self.clock.after(OPENS, open_late)
        self.batcher.serve()

    def heard(self, moments: list[float], arrival: object) -> None:
        if isinstance(arrival, HopAudio):  # otherwise the end of the clock
            moments.append(round(self.clock.now(), 4))
            self.batcher.taken(self.slots[id(moments)])


FOUR_SECONDS = [(0.1, 100)]
"""All that the first listener needs for four more steps."""


def test_a_step_that_can_wait_begins_behind_the_first_hop_that_is_expected() -> None:
    # Four steps are over at 0.31; the next block is there when the new stream has been opened.
    scene = Scene([*FOUR_SECONDS, (OPENS + 0.03, 25)], comes=AHEAD)
    assert scene.first == [pytest.approx(OPENS + AHEAD + STEP)]
    # Both fit into one step.
    assert scene.playing[-1] == pytest.approx(OPENS + AHEAD + 2 * STEP, abs=STEP + 1e-3)


def test_in_an_engine_of_single_steps_nobody_waits() -> None:
    scene = Scene([*FOUR_SECONDS, (OPENS + 0.03, 25)], comes=AHEAD, widest_step=1)
    assert scene.playing[-1] == pytest.approx(OPENS + 0.03 + STEP)
    assert scene.first == [pytest.approx(OPENS + 0.03 + 2 * STEP)]


def test_a_step_that_is_over_before_is_not_put_off() -> None:
    scene = Scene([*FOUR_SECONDS, (OPENS + 0.005, 25)], comes=AHEAD)
    assert scene.playing[-1] == pytest.approx(OPENS + 0.005 + STEP)
    assert scene.first == [pytest.approx(OPENS + AHEAD + STEP)]


def test_tokens_that_do_not_come_are_not_awaited_for_long() -> None:
    scene = Scene([*FOUR_SECONDS, (OPENS + 0.03, 25)], comes=None)
    assert scene.playing[-1] == pytest.approx(OPENS + AHEAD + OVERDUE_SECONDS + STEP)


def test_a_player_that_has_little_left_is_served_at_once() -> None:
    # 120 ms of sound at 0.11, and the next block is there when they have nearly been played.
    assert Scene([(OPENS + 0.03, 25)], comes=AHEAD).playing[-1] == pytest.approx(OPENS + 0.03 + STEP)


def test_a_stream_that_is_over_teaches_nothing() -> None:
    scene = Scene([], comes=None)
    over = scene.slots[id(scene.first)]
    assert over.over
    learned = list(scene.batcher._next_step.first_hops._seen)
    scene.batcher.feed(over, voice(16).tokens)
    assert list(scene.batcher._next_step.first_hops._seen) == learned
