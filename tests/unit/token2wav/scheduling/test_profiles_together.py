"""Streams of the continuous profile together with sentences of the other profiles, whose steps are
long and decode one stream each.
"""

from functools import partial

from bench.token2wav_schedule.clock import VirtualClock
from bench.token2wav_schedule.engines import ModelledDecoder, Times
from services.token2wav.inputs.request import Profile, Sentence
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.scheduling.stream_slot import HopAudio
from tests.unit.token2wav.speaking import voice

STEP, LONG = 0.08, 5.0


class Scene:
    """Steps of the served profile take STEP, those of the others LONG. full: streams hold all the
    memory there is.
    """

    def __init__(self, *, full: bool = False) -> None:
        self.clock = VirtualClock(lambda: self.batcher.close())
        batching, single = (self._decoder(seconds, widest) for seconds, widest in ((STEP, 32), (LONG, 1)))
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
    scene = Scene()
    scene.speak("served", Profile.CONTINUOUS, (2.0, 16), (2.25, 25), (2.5, 25))
    scene.speak("offline", Profile.OFFLINE, (2.01, 50))
    assert scene.first() == {"served": 2.0 + STEP, "offline": 2.0 + STEP + LONG}


def test_first_sounds_of_other_profiles_do_not_keep_one_waiting_for_ever() -> None:
    """Each comes before the one under way has ended."""
    scene = Scene()
    for at in range(6):
        scene.speak(f"upstream {at}", Profile.UPSTREAM, (2.0 + 4.9 * at, 20))
    scene.speak("served", Profile.CONTINUOUS, (2.01, 16), (2.02, 25))
    assert scene.first()["served"] <= 2.0 + 2 * LONG + STEP


def test_an_offline_sentence_waits_for_streams_that_need_no_room() -> None:
    """Both have come when a step is over, and the offline one was the first."""
    scene = Scene(full=True)
    scene.speak("offline", Profile.OFFLINE, (2.01, 50))
    scene.speak("before", Profile.CONTINUOUS, (2.0, 16))
    scene.speak("served", Profile.CONTINUOUS, (2.02, 41), (2.03, 25))
    first = scene.first()
    assert first["served"] < first["offline"]
