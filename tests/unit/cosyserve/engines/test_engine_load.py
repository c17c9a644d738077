"""What speech costs is the cost of streams that are spoken: callers who hang up before any speech
do not change it.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from cosyserve.engines.engine_load import WINDOW_SECONDS, BusyMeter, EngineLoad, Work
from services.llm.backends.backend import MeasuredGeneration
from services.llm.generation.request import Generation, Grouping, Hop, Prompt, Sampling


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.load = EngineLoad()
        self.meter = BusyMeter(self.load, lambda: self.now)

    def speak(self, speech_seconds: float, busy_seconds: float) -> None:
        work = self.meter.begins()
        self.now += busy_seconds
        self.meter.made(work, speech_seconds)
        self.meter.ends(work)

    def hang_up(self, busy_seconds: float) -> None:
        self.speak(0.0, busy_seconds)

    @property
    def factor(self) -> float:
        return self.load.now.real_time_factor


def test_who_hangs_up_before_any_speech_costs_no_speech() -> None:
    clock = Clock()
    clock.speak(5.0, 0.5)
    for _ in range(100_000):
        clock.hang_up(0.3)
        clock.now += 1.0
    assert clock.factor == pytest.approx(0.1)
    assert len(clock.load._worked) <= 2
    clock.speak(5.0, 0.5)
    assert clock.factor == pytest.approx(0.1)


TIMELINES: dict[str, list[tuple[float, str, str, float | None]]] = {
    # The engine needs longer for the speech that there is, and that is what is measured.
    "who hangs up beside one who is spoken takes his time": [
        (0.0, "spoken", "begins", None),
        *[
            (at, "gone", step, None)
            for tenth in range(10)
            for at, step in ((tenth / 10, "begins"), ((tenth + 1) / 10, "ends"))
        ],
        (1.0, "spoken", "made", 1.0),
        (1.0, "gone", "begins", None),
        (1.5, "gone", "ends", None),
        (1.5, "spoken", "ends", 1.5),
    ],
    # Those who hang up are in from 0 to 3 s, and from 2.5 to 6 s.
    "the time before the first speech counts for who was in": [
        (0.0, "gone", "begins", None),
        (1.0, "first", "begins", None),
        (2.0, "second", "begins", None),
        (2.5, "other", "begins", None),
        (3.0, "gone", "ends", None),
        (4.0, "first", "made", 3.0),
        (4.0, "first", "ends", None),
        (5.0, "second", "made", None),
        (5.0, "second", "ends", 4.0 / 2.0),
        (6.0, "other", "ends", 4.0 / 2.0),
    ],
    "an older piece that speaks later counts from its begin": [
        (0.0, "older", "begins", None),
        (1.0, "younger", "begins", None),
        (2.0, "younger", "made", 1.0),
        (2.0, "younger", "ends", None),
        (3.0, "older", "made", 3.0 / 2.0),
    ],
}
"""When which work begins, has made a second of speech, or ends; and the factor then, or None."""


@pytest.mark.parametrize("timeline", TIMELINES.values(), ids=TIMELINES)
def test_what_works_side_by_side_shares_the_time(timeline: list[tuple[float, str, str, float | None]]) -> None:
    clock, works = Clock(), dict[str, Work]()
    for now, name, step, factor in timeline:
        clock.now = now
        if step == "begins":
            works[name] = clock.meter.begins()
        elif step == "made":
            clock.meter.made(works[name], 1.0)
        else:
            clock.meter.ends(works[name])
        assert factor is None or clock.factor == pytest.approx(factor)


def test_work_without_speech_is_kept_in_one_place_and_forgotten_with_the_rest() -> None:
    load = EngineLoad()
    load.worked(0.5, 5.0)
    for _ in range(10_000):
        load.worked(0.3, 0.0)
    assert len(load._worked) == 1
    spoken = 0
    while load.now is not None and load.now.real_time_factor > 0.2:
        load.worked(1.0, 10.0)
        spoken += 1
    assert spoken <= WINDOW_SECONDS / 10.0


def test_the_window_is_no_longer_than_so_much_work() -> None:
    """An engine that was held up for minutes has what it measured then forgotten after half a
    minute of work.
    """
    load = EngineLoad()
    for _ in range(100):
        load.worked(10.0, 0.1)
    assert len(load._worked) <= WINDOW_SECONDS / 10.0 + 1


class Slow:
    """A backend whose prefill takes 0.3 s and whose every hop of a second takes 0.1 s, on the clock
    of the test.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.prefilled = asyncio.Event()

    async def generate(self, generation: Generation) -> AsyncGenerator[Hop]:
        self.now += 0.3
        self.prefilled.set()
        if not generation.text:
            await asyncio.Event().wait()
        self.now += 0.1
        yield Hop([0] * 25)


async def test_prefills_that_are_hung_up_leave_the_cost_of_the_llm_as_it_is() -> None:
    backend = Slow()
    generation = MeasuredGeneration(backend)  # type: ignore[arg-type]
    generation._meter = BusyMeter(generation.load, lambda: backend.now)

    async def ask(text: tuple[int, ...]) -> None:
        asked = Generation(prompt=Prompt(), text=text, sampling=Sampling(), grouping=Grouping(first=25))
        async with contextlib.aclosing(generation.generate(asked)) as hops:
            async for _ in hops:
                pass

    await ask((1,))
    for _ in range(20):
        backend.prefilled.clear()
        asking = asyncio.create_task(ask(()))
        await backend.prefilled.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert generation.load.now.real_time_factor == pytest.approx(0.4)
