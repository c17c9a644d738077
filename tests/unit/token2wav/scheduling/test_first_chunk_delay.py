"""When a finished first chunk is delivered: at once if the second will be on time, otherwise as
soon as it will be. And streams of the continuous profile together with sentences of the other
profiles, whose steps are long and decode one stream each.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cosyserve.errors import CosyserveError
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.inputs.request import Growth, Hops, Profile, Sentence
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.first_chunk_delay import (
    CROWD_MARGIN_SECONDS,
    SINGLE_HOLD_SECONDS,
    SINGLE_MARGIN_SECONDS,
    FirstChunkDelay,
)
from services.token2wav.scheduling.hop_audio import HopAudio
from services.token2wav.scheduling.measurements import ForecastErrors, StepCosts, TokenPace
from services.token2wav.scheduling.memory_budget import Limits
from tests.unit.token2wav.speaking import voice
from tools.capacity.timing.clock import VirtualClock
from tools.capacity.timing.engines import ModelledDecoder, ModelledState, Times

STEP = 0.05
FIRST, SECOND = 0.12, 1.0
"""Seconds of sound in the first two pieces of a voice with 87 prompt tokens."""


class Quiet(ModelledDecoder):
    """The first so many seconds of a sentence are inaudible."""

    quiet_seconds = 0.0

    def step(self, step_inputs: Sequence[StepInput[ModelledState]]) -> list[Decoded | CosyserveError | None]:
        silent = [round(24000 * self.quiet_seconds) - step_input.state.samples for step_input in step_inputs]
        return [
            replace(decoded, samples=np.where(np.arange(len(decoded.samples)) < end, np.float32(0), decoded.samples))
            for end, decoded in zip(silent, super().step(step_inputs), strict=True)
        ]


def complete(batcher: Batcher, sentence: Sentence, tokens: int, deliver: Callable[[object], object]) -> None:
    """Open a stream whose tokens are all there."""
    slot = batcher.open(sentence, deliver)
    batcher.feed(slot, voice(tokens).tokens)
    batcher.finish(slot)


class Scene:
    """One observed stream and others that are decoded before it; each takes `step`. gap: seconds
    from the first message of 13 + 3 tokens to the next one of 25. cold: no measurements of the
    engine yet. quiet: inaudible seconds at the beginning of a sentence.
    """

    def __init__(
        self,
        gap: float,
        *,
        others: int = 1,
        others_gap: float | None = None,
        hold_seconds: float = 0.5,
        widest_step: int = 32,
        step: float = STEP,
        cold: bool = False,
        quiet: float = 0.0,
        **sentence: object,
    ) -> None:
        self.clock = VirtualClock(lambda: self.batcher.close())
        times = Times(flow={32: step}, vocoder={32: 0.0}, host=0.0, jitter=0.0)
        decoder = Quiet(self.clock, times, lambda: False, widest_step)
        decoder.quiet_seconds = quiet
        limits = Limits(max_streams=99, state_bytes=1 << 40)
        self.batcher = Batcher({Profile.CONTINUOUS: decoder}, limits, hold_seconds=hold_seconds, clock=self.clock)
        self.others_gap = gap if others_gap is None else others_gap
        if not cold:
            self.batcher._costs.add(1, step)
            for streams in (1, 2, 4) * 8:
                self.batcher._delivery.first_chunk_delay._errors.add(streams, 0.0)
            self.batcher._pace.add(25, self.others_gap)
        self.gap, self.step, self.others, self.sentence = gap, step, others, Sentence(voice(87), **sentence)  # type: ignore[arg-type]
        self.arrivals: list[tuple[float, float]] = []
        self.spans: list[str] = []

    def pieces(self) -> list[tuple[float, float]]:
        """When each piece was handed out, counted from the moment in which the first was finished,
        and how many seconds it plays.
        """
        for _ in range(self.others):
            self.speak(Sentence(voice(87)), -1.0, self.others_gap, [])
        self.speak(self.sentence, 0.0, self.gap, self.arrivals)
        self.batcher.serve()
        return [(round(at - 2.0 - self.step, 3), seconds) for at, seconds in self.arrivals]

    def speak(self, sentence: Sentence, later: float, gap: float, arrivals: list[tuple[float, float]]) -> None:
        def heard(arrival: object) -> None:
            if isinstance(arrival, HopAudio):
                arrivals.append((self.clock.now(), round(arrival.samples.size / 24000, 2)))
                self.spans += [timing.name for timing in arrival.timings if arrivals is self.arrivals]
                self.batcher.taken(slot)

        slot = self.batcher.open(sentence, heard)
        for at, tokens in ((0.0, 16), (gap, 25), (2 * gap, 25)):
            self.clock.after(2.0 + later + at, partial(self.batcher.feed, slot, voice(tokens).tokens))
        # Others stay open behind their tokens.
        if arrivals is self.arrivals:
            self.clock.after(2.0 + later + 2 * gap, lambda: self.batcher.finish(slot))


def test_a_second_piece_that_will_be_in_time_lets_the_first_go_at_once() -> None:
    (first, seconds), (second, more), *_ = Scene(gap=0.01).pieces()
    assert (first, seconds, more) == (0.0, FIRST, SECOND)
    assert second == STEP


def test_a_first_piece_waits_until_the_second_will_be_in_time() -> None:
    """Tokens arrive 200 ms later: 150 after the first chunk is ready, and then a step of 50. The
    chunk plays for 120, and 10.6 are the margin (in whole milliseconds). Two steps are assumed,
    because one may be in progress.
    """
    (first, _), (second, _), *_ = Scene(gap=0.2).pieces()
    assert second == pytest.approx(0.2)
    assert first > 0.0
    assert first + FIRST >= second
    assert first == pytest.approx(0.15 + 2 * STEP + 0.0106 - FIRST, abs=5e-4)


def test_a_wait_is_a_span() -> None:
    waited, at_once = Scene(gap=0.2), Scene(gap=0.01)
    waited.pieces()
    at_once.pieces()
    assert waited.spans[:4] == ["token2wav.flow", "token2wav.vocoder", "token2wav.hold", "token2wav.flow"]
    assert "token2wav.hold" not in at_once.spans


def test_a_piece_does_not_wait_in_vain() -> None:
    """The second chunk is three seconds away, and the first may wait for half a second."""
    made = Scene(gap=3.0).pieces()
    assert made[0] == (0.0, FIRST)
    assert [seconds for _, seconds in made] == [seconds for _, seconds in Scene(gap=0.01).pieces()]


@pytest.mark.parametrize("hold_seconds", [0.5, 0.1])
def test_a_piece_waits_no_longer_than_allowed_for_tokens_that_are_late(hold_seconds: float) -> None:
    """Those of others come within 10 ms, so nothing says that these do not; two steps of 80 ms are
    more than what is left to play.
    """
    scene = Scene(gap=3.0, others_gap=0.01, step=0.08, hold_seconds=hold_seconds)
    assert scene.pieces()[0] == (hold_seconds, FIRST)


@pytest.mark.parametrize("setting", [{"hold_seconds": 0.0}, {"sentence_index": 1}, {"start_sample": 100}])
def test_who_never_waits(setting: dict[str, object]) -> None:
    """The delay switched off, and listeners that hear something already."""
    assert Scene(gap=0.3, **setting).pieces()[0] == (0.0, FIRST)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"others": 0},
        {"hops": Hops(growth=Growth.FIXED)},
        {"hops": Hops(growth=Growth.EXPONENTIAL)},
        {"widest_step": 1},
    ],
)
def test_who_waits(setting: dict[str, object]) -> None:
    """With others or alone, with hops that the caller has named, and in an engine of single
    steps.
    """
    (first, seconds), (second, _), *_ = Scene(gap=0.3, **setting).pieces()  # type: ignore[arg-type]
    assert seconds == FIRST
    assert 0.0 < first < second <= first + FIRST


def test_in_an_engine_of_single_steps_a_piece_goes_while_the_step_of_the_second_is_under_way() -> None:
    """Alone, tokens 100 ms after the first piece, and a step of 200: the second piece comes 300 ms
    after the first, which goes 120 ms before, less the 15 that are for its way."""
    (first, _), (second, _), *_ = Scene(gap=0.3, step=0.2, others=0, widest_step=1).pieces()
    assert second == pytest.approx(0.3)
    assert first == pytest.approx(0.3 - FIRST + 0.015, abs=1e-3)


@pytest.mark.parametrize("streams", [2, 3, 4])
def test_streams_that_begin_together_have_no_gap_in_an_engine_of_single_steps(streams: int) -> None:
    """Three steps each make 2.12 s of sound, so the engine works 85 % of the time: what is due
    first goes first, and each first piece waits for its second."""
    scene = Scene(gap=0.1, step=0.6 / streams, others=0, widest_step=1, hold_seconds=2.0)
    heard: list[list[tuple[float, float]]] = [[] for _ in range(streams)]
    for each in heard:
        scene.speak(Sentence(voice(87)), 0.0, 0.1, each)
    scene.batcher.serve()
    for each in heard:
        dry = each[0][0]
        for at, seconds in each:
            assert at <= dry + 1e-9
            dry += seconds


@pytest.mark.parametrize("widest_step", [1, 32])
def test_only_what_can_be_heard_of_a_first_piece_counts(widest_step: int) -> None:
    """Of its 120 ms the first 70 are silent; of these 20 are played."""
    (first, _), (second, _), *_ = Scene(gap=0.3, others=0, widest_step=widest_step, quiet=0.07).pieces()
    (loud, _), *_ = Scene(gap=0.3, others=0, widest_step=widest_step).pieces()
    # A step of several streams is waited for as a whole.
    assert first == pytest.approx(loud + 0.05 if widest_step == 1 else 0.25, abs=1e-3)
    assert second <= first + 0.07


def test_a_first_piece_that_is_silent_leaves_the_first_audible_sample_where_it_is() -> None:
    """It waits as if all of it were heard, for those who play it, and the second is there as early
    as without.
    """
    silent, plain = (Scene(gap=0.3, others=0, widest_step=1, quiet=quiet).pieces() for quiet in (FIRST, 0.0))
    assert silent == plain


def test_an_audible_second_chunk_after_a_silent_one_waits_for_the_third() -> None:
    """Steps of 1.5 s: a second piece that is the first to be heard, and lasts a second, would leave
    a gap.
    """
    pieces = Scene(gap=0.3, others=0, widest_step=1, step=1.5, quiet=FIRST, hold_seconds=5.0).pieces()
    audible = [(at, seconds) for at, seconds in pieces if seconds > FIRST]
    assert audible[1][0] <= audible[0][0] + audible[0][1]


@pytest.mark.parametrize("widest_step", [1, 32])
def test_an_engine_that_has_not_spoken_before_keeps_the_first_piece_until_the_second_is_there(widest_step: int) -> None:
    """What a step takes is known from the first one; how fast tokens come is not."""
    (first, seconds), (second, _), *_ = Scene(gap=0.3, others=0, widest_step=widest_step, cold=True).pieces()
    assert seconds == FIRST
    assert second <= first + seconds


def test_a_later_sentence_is_due_when_its_listener_has_played_what_he_has() -> None:
    """Two streams have work: the one whose listener has 50 ms left goes before the one with a
    second, in whatever order they arrived.
    """
    scene = Scene(gap=0.1, others=0, widest_step=1)
    served: list[str] = []
    for name, left in (("patient", 1.0), ("hungry", 0.05)):
        sentence = Sentence(voice(87), sentence_index=1, listener_seconds=left)
        complete(scene.batcher, sentence, 30, lambda _, name=name: served.append(name))  # type: ignore[misc]
    scene.batcher.serve()
    assert served[0] == "hungry"


@pytest.mark.parametrize(("step", "waits"), [(0.2, False), (0.9, True)])
def test_a_whole_sentence_in_one_piece_waits_for_the_next_one_where_that_takes_longer(step: float, waits: bool) -> None:
    """The first sentence lasts 0.6 s; the step of the second, which is begun while the first is
    made, takes `step`.
    """
    scene = Scene(gap=0.1, others=0, widest_step=1, step=step, hold_seconds=2.0)
    heard: list[tuple[int, float]] = []
    begun = scene.clock.now()
    for index in (0, 1):
        sentence = Sentence(voice(87), sentence_index=index, utterance=5)
        complete(scene.batcher, sentence, 15, lambda _, index=index: heard.append((index, scene.clock.now())))  # type: ignore[misc]
    scene.batcher.serve()
    (first, at), (second, later) = heard
    assert (first, second) == (0, 1)
    assert later == pytest.approx(begun + 2 * step)
    assert (at > begun + step + 1e-6) == waits
    assert later <= at + 0.6


def test_a_whole_sentence_in_one_piece_leaves_at_once_when_the_next_is_given_up() -> None:
    scene = Scene(gap=0.1, others=0, widest_step=1, step=0.9, hold_seconds=2.0)
    heard: list[float] = []
    begun = scene.clock.now()
    complete(scene.batcher, Sentence(voice(87), utterance=5), 15, lambda _: heard.append(scene.clock.now()))
    second = scene.batcher.open(Sentence(voice(87), sentence_index=1, utterance=5), lambda _: None)
    scene.clock.after(1.0, lambda: scene.batcher.cancel(second))
    scene.batcher.feed(second, voice(15).tokens)
    scene.batcher.serve()
    assert heard == [pytest.approx(begun + 1.0)]


def test_a_piece_that_becomes_longer_while_it_waits_leaves_as_one() -> None:
    """Steps of 200 ms: the first piece cannot bridge one, so it leaves with the second."""
    assert Scene(gap=0.05, step=0.2).pieces()[0] == (0.2, FIRST + SECOND)


def test_forecasts_that_were_too_early_make_the_next_first_pieces_wait_longer() -> None:
    """With about as many streams; with others, and before enough are known, a share of the forecast
    is added.
    """
    errors = ForecastErrors()
    for seconds in (-0.02, 0.03, *[0.0] * 6):
        assert errors.worst(3, 0.2) == pytest.approx(0.1)
        errors.add(3, seconds)
    assert errors.worst(4, 0.2) == 0.03
    assert errors.worst(1, 0.2) == pytest.approx(0.1)
    for _ in range(32):
        errors.add(4, -0.01)
    assert errors.worst(3, 0.2) == -0.01


def test_few_large_errors_count_at_once() -> None:
    errors = ForecastErrors()
    errors.add(1, 0.3)
    assert errors.worst(1, 0.2) == 0.3


def test_a_forecast_is_compared_with_what_came() -> None:
    """Tokens come 100 ms later than the pace says, so the second piece does."""
    scene = Scene(gap=0.4, others=0, widest_step=1, others_gap=0.3)
    scene.pieces()
    assert scene.batcher._delivery.first_chunk_delay._errors.worst(1, 0.0) == pytest.approx(0.1, abs=0.02)


SERVED, LONG = 0.08, 5.0


class MixedScene:
    """Steps of the served profile take SERVED, those of the others LONG. full: streams hold all the
    memory there is.
    """

    def __init__(self, *, full: bool = False) -> None:
        self.clock = VirtualClock(lambda: self.batcher.close())
        batching, single = (self._decoder(seconds, widest) for seconds, widest in ((SERVED, 32), (LONG, 1)))
        single.goes_on_without_room = False
        decoders = {Profile.CONTINUOUS: batching, Profile.UPSTREAM: single, Profile.OFFLINE: single}
        self.batcher = Batcher(decoders, Limits(max_streams=99, state_bytes=0 if full else 1 << 40), clock=self.clock)
        self.heard: list[tuple[str, float]] = []

    def _decoder(self, seconds: float, widest: int) -> ModelledDecoder:
        return ModelledDecoder(
            self.clock, Times(flow={32: seconds}, vocoder={32: 0.0}, host=0.0, jitter=0.0), lambda: False, widest
        )

    def speak(self, name: str, profile: Profile, *messages: tuple[float, int]) -> None:
        """messages: when, and how many tokens."""

        def hear(arrival: object) -> None:
            if isinstance(arrival, HopAudio):
                self.heard.append((name, round(self.clock.now(), 3)))
                self.batcher.taken(slot)

        slot = self.batcher.open(Sentence(voice(87), profile=profile), hear)
        for at, count in messages:
            self.clock.after(at, partial(self.batcher.feed, slot, voice(count).tokens))
        self.clock.after(messages[-1][0], lambda: self.batcher.finish(slot))

    def first(self) -> dict[str, float]:
        """When each was heard first."""
        self.batcher.serve()
        return dict(reversed(self.heard))


def test_no_finished_chunk_waits_for_a_step_of_unknown_length() -> None:
    scene = MixedScene()
    scene.speak("served", Profile.CONTINUOUS, (2.0, 16), (2.25, 25), (2.5, 25))
    scene.speak("offline", Profile.OFFLINE, (2.01, 50))
    assert scene.first() == {"served": 2.0 + SERVED, "offline": 2.0 + SERVED + LONG}


def test_first_sounds_of_other_profiles_do_not_keep_one_waiting_for_ever() -> None:
    """Each comes before the one under way has ended."""
    scene = MixedScene()
    for at in range(6):
        scene.speak(f"upstream {at}", Profile.UPSTREAM, (2.0 + 4.9 * at, 20))
    scene.speak("served", Profile.CONTINUOUS, (2.01, 16), (2.02, 25))
    assert scene.first()["served"] <= 2.0 + 2 * LONG + SERVED


def test_an_offline_sentence_waits_for_streams_that_need_no_room() -> None:
    """Both have come when a step is over, and the offline one was the first."""
    scene = MixedScene(full=True)
    scene.speak("offline", Profile.OFFLINE, (2.01, 50))
    scene.speak("before", Profile.CONTINUOUS, (2.0, 16))
    scene.speak("served", Profile.CONTINUOUS, (2.02, 41), (2.03, 25))
    first = scene.first()
    assert first["served"] < first["offline"]


@pytest.mark.parametrize("gap", [0.01, 0.45])
def test_a_first_sound_that_waits_for_tokens_or_is_held_is_not_late(gap: float) -> None:
    """Nor one whose voice was known two seconds before its tokens."""
    scene = Scene(gap=gap)
    scene.pieces()
    scene.batcher.load.worked(1.0, 1.0)
    load = scene.batcher.load.now
    assert load is not None
    assert (load.pieces > 0, load.late_pieces) == (True, 0)


def test_a_first_sound_that_the_engine_keeps_waiting_is_late() -> None:
    scene = Scene(gap=0.01, step=0.4)
    scene.pieces()
    scene.batcher.load.worked(1.0, 1.0)
    load = scene.batcher.load.now
    assert load is not None
    assert load.late_pieces >= 1


@pytest.mark.parametrize("errors", [[], [-0.5] * 40, [0.2] * 40])
def test_a_crowd_is_not_forecast_where_that_decides_nothing(errors: list[float]) -> None:
    """A forecast looks at every stream: for each held piece of hundreds it would take longer than
    the steps.
    """
    costs, pace, asked = StepCosts(), TokenPace(), set[int]()
    costs.add(1, STEP)
    delay = FirstChunkDelay(None, costs, pace, batches=False)
    for streams, ready, now in itertools.product((1, 20, 60, 80, 300), (0.0, 0.3, 5.0), (10.0, 11.9, 12.0, 14.0)):
        for error in errors:
            delay._errors.add(streams, error)
        slot: Any = SimpleNamespace(held_since=10.0, held_seconds=FIRST, on_next_hop=lambda at: None)

        def expected(*of: object, streams: int = streams, at: float = now + ready) -> float:
            asked.add(streams)
            return at

        delay.second.expected = expected  # type: ignore[method-assign]
        margin = SINGLE_MARGIN_SECONDS + CROWD_MARGIN_SECONDS * (streams - 1)
        until = now + ready + delay._errors.worst(streams, ready) + margin - FIRST
        wanted = min(until, 10.0 + SINGLE_HOLD_SECONDS) if until > now else now
        assert delay._until_single(slot, slot, [slot] * streams, now) == pytest.approx(wanted)
    assert 300 not in asked
    assert {1, 20} <= asked
