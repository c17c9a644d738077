"""When a finished first piece is handed out: at once where the second will be in time, otherwise as soon as it will."""

from functools import partial

import pytest

from bench.modelled_engines import ModelledDecoder, Times
from bench.virtual_time import VirtualClock
from services.token2wav.batcher import Batcher
from services.token2wav.budget import Limits
from services.token2wav.lane import HopAudio
from services.token2wav.request import Growth, Hops, Profile, Sentence
from tests.unit.token2wav.speaking import voice

STEP = 0.05
FIRST, SECOND = 0.12, 1.0
"""Seconds of sound in the first two pieces of a voice with 87 prompt tokens."""


class Scene:
    """One stream that is watched and others that keep it from being alone; each takes `step`. gap: seconds from the first message of
    13 + 3 tokens to the next one of 25."""

    def __init__(
        self,
        gap: float,
        *,
        others: int = 1,
        others_gap: float | None = None,
        hold_seconds: float = 0.5,
        widest_step: int = 32,
        step: float = STEP,
        **sentence: object,
    ) -> None:
        self.clock = VirtualClock(lambda: self.batcher.close())
        times = Times(flow={32: step}, vocoder={32: 0.0}, host=0.0, jitter=0.0)
        decoder = ModelledDecoder(self.clock, times, lambda: False, widest_step)
        limits = Limits(max_streams=99, state_bytes=1 << 40)
        self.batcher = Batcher({Profile.CONTINUOUS: decoder}, limits, hold_seconds=hold_seconds, clock=self.clock)
        self.others_gap = gap if others_gap is None else others_gap
        self.gap, self.step, self.others, self.sentence = gap, step, others, Sentence(voice(87), **sentence)  # type: ignore[arg-type]
        self.arrivals: list[tuple[float, float]] = []
        self.spans: list[str] = []

    def pieces(self) -> list[tuple[float, float]]:
        """When each piece was handed out, counted from the moment in which the first was finished, and how many seconds it plays."""
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
                self.batcher.taken(lane)

        lane = self.batcher.open(sentence, heard)
        for at, tokens in ((0.0, 16), (gap, 25), (2 * gap, 25)):
            self.clock.after(2.0 + later + at, partial(self.batcher.feed, lane, voice(tokens).tokens))
        # Others stay open behind their tokens.
        if arrivals is self.arrivals:
            self.clock.after(2.0 + later + 2 * gap, lambda: self.batcher.finish(lane))


def test_a_second_piece_that_will_be_in_time_lets_the_first_go_at_once() -> None:
    (first, seconds), (second, more), *_ = Scene(gap=0.01).pieces()
    assert (first, seconds, more) == (0.0, FIRST, SECOND)
    assert second == STEP


def test_a_first_piece_waits_until_the_second_will_be_in_time() -> None:
    """Tokens 200 ms later: 150 after the first piece is made, and then a step of 50. It plays for 120, and 10.6 are for its way (told
    in whole milliseconds); two steps are reckoned with, as one may be under way."""
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
    """The second piece is three seconds away, and half a second is what the first may wait."""
    made = Scene(gap=3.0).pieces()
    assert made[0] == (0.0, FIRST)
    assert [seconds for _, seconds in made] == [seconds for _, seconds in Scene(gap=0.01).pieces()]


@pytest.mark.parametrize("hold_seconds", [0.5, 0.1])
def test_a_piece_waits_no_longer_than_allowed_for_tokens_that_are_late(hold_seconds: float) -> None:
    """Those of others come within 10 ms, so nothing says that these do not; two steps of 80 ms are more than what is left to play."""
    scene = Scene(gap=3.0, others_gap=0.01, step=0.08, hold_seconds=hold_seconds)
    assert scene.pieces()[0] == (hold_seconds, FIRST)


@pytest.mark.parametrize(
    "setting",
    [
        {"hold_seconds": 0.0},
        {"others": 0},
        {"widest_step": 1},
        {"sentence_index": 1},
        {"start_sample": 100},
        {"hops": Hops(growth=Growth.FIXED)},
        {"hops": Hops(growth=Growth.EXPONENTIAL)},
    ],
)
def test_who_never_waits(setting: dict[str, object]) -> None:
    """Holding set off, alone, an engine of single steps, listeners that hear something already, and hops that the caller has named."""
    assert Scene(gap=0.3, **setting).pieces()[0] == (0.0, FIRST)  # type: ignore[arg-type]


def test_a_piece_that_becomes_longer_while_it_waits_leaves_as_one() -> None:
    """Steps of 200 ms: the first piece cannot bridge one, so it leaves with the second."""
    assert Scene(gap=0.05, step=0.2).pieces()[0] == (0.2, FIRST + SECOND)
