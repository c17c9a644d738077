"""Who is admitted, who is refused, and whether what the refused are told comes true."""

import asyncio
import heapq
import math
import random
from collections.abc import Callable

import pytest

from cosyserve.engines.engine_load import BusyMeter, EngineLoad, Load
from cosyserve.errors import Overloaded
from services.orchestrator.decode_ahead import PlaybackClock
from services.orchestrator.load_control.adaptive_limit import (
    BACK_OFF_SECONDS,
    RECOVER_SECONDS,
    USED_SHARE,
    AdaptiveLimit,
    LimitUpdater,
    StageLoad,
)
from services.orchestrator.load_control.admission import Admission, PreemptiblePlace
from services.orchestrator.load_control.wait_estimate import (
    ANYTHING,
    ARRIVING_TEXT,
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    TEXT,
    WaitEstimator,
)


class Door:
    """Requests that come by chance on a clock of their own: who is refused with a hint waits that
    long and asks again. Text is 1 to 300 bytes and a byte takes 20 ms, give or take a third."""

    def __init__(self, limit: int, per_second: float, seed: int) -> None:
        self.now = 0.0
        self.admission = Admission(limit, now=lambda: self.now)
        self.dice = random.Random(seed)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.number = 0
        self.per_second = per_second
        self.hints: list[float] = []
        self.first_tries: list[bool] = []
        """For each refused caller, whether there was a place when it came back as told."""
        self.idle_seconds = 0.0

    def at(self, seconds: float, event: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.events, (self.now + seconds, self.number, event))

    def run(self, seconds: float) -> None:
        self.at(0.0, self.arrive)
        while self.events and self.events[0][0] < seconds:
            moment, _, event = heapq.heappop(self.events)
            self.idle_seconds += (moment - self.now) * (self.admission.limit - self.admission.active)
            self.now = moment
            event()

    def arrive(self) -> None:
        size = self.dice.randint(1, 300)
        self.ask(size, tries=0)
        self.at(self.dice.expovariate(self.per_second), self.arrive)

    def ask(self, size: int, tries: int) -> None:
        place = self.admission.admit(TEXT, size)
        try:
            place.__enter__()
        except Overloaded as error:
            if tries == 1:
                self.first_tries.append(False)
            self.hints.append(hint := error.retry_after or math.nan)
            if tries < 20:
                self.at(hint + self.dice.uniform(0.0, 0.05), lambda: self.ask(size, tries + 1))
            return
        if tries == 1:
            self.first_tries.append(True)
        self.at(size * 0.02 * self.dice.uniform(0.67, 1.33), lambda: place.__exit__(None, None, None))


def test_of_callers_who_come_back_when_they_are_told_most_find_a_place() -> None:
    """Half of the places are taken on average, and callers who come by chance take some that others
    were told of. A hint that is the mean of all requests by the number of places brings 48 % in at
    the second try, and more than half as many refusals again."""
    door = Door(limit=4, per_second=0.5 * 4 / (150 * 0.02), seed=1)
    door.run(4000.0)
    assert len(door.first_tries) > 300
    assert sum(door.first_tries) / len(door.first_tries) > 0.6
    assert min(door.hints) >= SHORTEST_SECONDS
    assert max(door.hints) <= LONGEST_SECONDS


def test_hints_leave_few_places_empty_when_more_come_than_can_be_served() -> None:
    door = Door(limit=4, per_second=1.1 * 4 / (150 * 0.02), seed=1)
    door.run(2000.0)
    assert door.idle_seconds < 0.15 * 4 * 2000


def test_the_hint_is_when_the_first_of_those_under_way_will_be_done() -> None:
    found = WaitEstimator()
    for seconds in (2.0, 2.0, 2.0):
        found.ends(found.begins(TEXT, 100, 0.0), seconds, completed=True)
    found.begins(TEXT, 100, 10.0)
    found.begins(TEXT, 300, 10.0)
    assert found.next_place(2, 11.0) == pytest.approx(1.0)
    assert found.next_place(2, 11.0) == pytest.approx(5.0)  # the next one is told the other place
    assert found.next_place(2, 16.9) == pytest.approx(
        0.25 * 6.9
    )  # those who were told to come by now have not come: the places are open


def test_with_fewer_places_than_requests_more_have_to_end() -> None:
    """The limit fell while three were under way."""
    found = WaitEstimator()
    for size in (100, 200, 300):
        found.begins(TEXT, size, 0.0)
    assert found.next_place(1, 0.0) == pytest.approx(300 * TEXT.first_guess)


def test_what_takes_longer_than_expected_is_waited_for_in_proportion() -> None:
    found = WaitEstimator()
    found.begins(ARRIVING_TEXT, 1.0, 0.0)
    assert found.next_place(1, 4.0) == pytest.approx(6.0)
    late = WaitEstimator()
    late.begins(ARRIVING_TEXT, 1.0, 0.0)
    assert late.next_place(1, 40.0) == pytest.approx(10.0)


def test_requests_that_were_hung_up_on_teach_nothing() -> None:
    found = WaitEstimator()
    found.ends(found.begins(TEXT, 100, 0.0), 0.01, completed=False)
    found.begins(TEXT, 100, 0.0)
    assert found.next_place(1, 0.0) == pytest.approx(100 * TEXT.first_guess)


def test_hang_ups_and_early_ends_do_not_shorten_the_hint() -> None:
    """What those under way will take decides, however many left before."""
    now = 0.0
    admission = Admission(2, now=lambda: now)

    def hint() -> float:
        with pytest.raises(Overloaded) as refused, admission.admit(TEXT, 200):
            pass
        return refused.value.retry_after or 0.0

    def hints() -> list[float]:
        with admission.admit(TEXT, 200) as text, admission.admit(ARRIVING_TEXT) as arriving:
            text.cut_short = arriving.cut_short = True
            return [hint() for _ in range(4)]

    before = hints()
    now = 100.0

    def hang_up() -> None:
        with admission.admit(TEXT, 200):
            raise asyncio.CancelledError

    for _ in range(200):
        now += 0.01
        with pytest.raises(asyncio.CancelledError):
            hang_up()
        with admission.admit(ARRIVING_TEXT) as place:
            now += 0.01
            place.cut_short = True
    now += 100.0
    assert hints() == pytest.approx(before)
    assert before[0] == pytest.approx(200 * TEXT.first_guess)
    assert before[2] == pytest.approx(200 * TEXT.first_guess + (200 * TEXT.first_guess + ARRIVING_TEXT.first_guess) / 2)


def test_a_flood_of_refusals_keeps_no_list_of_all() -> None:
    found = WaitEstimator()
    found.begins(ANYTHING, 1.0, 0.0)
    for _ in range(1000):
        found.next_place(1, 0.0)
    assert len(found._promised) <= 2


def loads(rtf: float, *, llm: float = 0.05, pieces: int = 0, late: int = 0, replicas: int = 1) -> list[StageLoad]:
    stages = [StageLoad("llm", "0", Load(llm))]
    return stages + [StageLoad("token2wav", str(at), Load(rtf, pieces, late)) for at in range(replicas)]


def test_a_replica_that_has_spoken_nothing_counts_as_the_others_of_its_stage() -> None:
    """Without it one request would be admitted, and the least busy choice would give each one to
    the first replica.
    """
    silent = StageLoad("token2wav", "new", None)
    assert AdaptiveLimit(16).of(loads(0.5), 0, 0.0) == 1
    assert AdaptiveLimit(16).of([*loads(0.5), silent], 0, 0.0) == int(USED_SHARE * 2 / 0.5) == 3
    assert AdaptiveLimit(16).of([silent], 0, 0.0) == 16


def test_as_many_are_admitted_as_the_slowest_stage_can_speak() -> None:
    assert AdaptiveLimit(16).of([], 0, 0.0) == 16
    assert AdaptiveLimit(16).of(loads(0.2), 0, 0.0) == int(USED_SHARE / 0.2) == 4
    assert AdaptiveLimit(16).of(loads(0.2, replicas=2), 0, 0.0) == 8
    assert AdaptiveLimit(16).of(loads(0.2, llm=0.5), 0, 0.0) == 1
    assert AdaptiveLimit(16).of(loads(2.0), 0, 0.0) == 1
    assert AdaptiveLimit(304).of(loads(0.0025, llm=0.0025), 0, 0.0) == 304


def test_the_limit_follows_what_is_measured_while_serving() -> None:
    limit = AdaptiveLimit(16)
    assert [limit.of(loads(rtf), 2, at) for at, rtf in enumerate((0.1, 0.2, 0.3, 0.1))] == [8, 4, 2, 8]


def test_late_pieces_lower_the_limit_below_those_under_way_and_it_recovers_one_by_one() -> None:
    limit, now = AdaptiveLimit(16), 100.0
    assert limit.of(loads(0.1, pieces=50, late=5), 6, now) == 8  # of the time before
    assert limit.of(loads(0.1, pieces=100, late=8), 6, now + 1) == 5
    assert limit.of(loads(0.1, pieces=110, late=9), 6, now + 2) == 5  # not so soon again
    assert limit.of(loads(0.1, pieces=130, late=12), 5, now + 1 + BACK_OFF_SECONDS) == 4
    calm = now + 1 + BACK_OFF_SECONDS
    told = [limit.of(loads(0.1, pieces=130 + at, late=12), 4, calm + RECOVER_SECONDS * at) for at in range(1, 7)]
    assert told == [5, 6, 7, 8, 8, 8]


def test_the_limit_recovers_while_nobody_asks() -> None:
    limit = AdaptiveLimit(16)
    limit.of(loads(0.1, pieces=50), 2, 0.0)
    assert limit.of(loads(0.1, pieces=60, late=5), 5, 1.0) == 4
    assert limit.of(loads(0.1, pieces=60, late=5), 1, 1.0 + 2.5 * RECOVER_SECONDS) == 6
    assert limit.of(loads(0.1, pieces=60, late=5), 1, 1.0 + 3 * RECOVER_SECONDS) == 7
    assert limit.of(loads(0.1, pieces=60, late=5), 1, 1.0 + 600 * RECOVER_SECONDS) == 8


def test_the_limit_is_halved_at_most_and_not_for_a_single_late_piece() -> None:
    limit = AdaptiveLimit(16)
    limit.of(loads(0.1, pieces=50), 1, 0.0)
    assert limit.of(loads(0.1, pieces=60, late=1), 1, 1.0) == 8
    assert limit.of(loads(0.1, pieces=70, late=3), 1, 2.0) == 4
    assert limit.of(loads(0.1, pieces=80, late=6), 1, 3.0 + BACK_OFF_SECONDS) == 2


def test_a_replica_that_begins_anew_is_not_taken_for_late() -> None:
    limit = AdaptiveLimit(16)
    limit.of(loads(0.1, pieces=500, late=5), 4, 0.0)
    assert limit.of(loads(0.1, pieces=3, late=1), 4, 10.0) == 8


async def test_the_limit_falls_below_those_who_were_under_way_when_a_piece_came_late() -> None:
    """They are over when the stages are asked."""
    admission, told = Admission(8), loads(0.1, pieces=100)
    asked = asyncio.Event()

    async def ask() -> list[StageLoad]:
        asked.set()
        return told

    watch = LimitUpdater(admission, ask, least_seconds=0.01)
    running = asyncio.create_task(watch.run())
    watch.changed()
    await asked.wait()
    told = loads(0.1, pieces=150, late=20)
    with admission.admit(), admission.admit(), admission.admit(), admission.admit():
        pass
    async with asyncio.timeout(5):
        while admission.limit == 8:
            await asyncio.sleep(0.01)
    running.cancel()
    assert admission.limit == 4


async def test_a_round_that_fails_is_not_the_last_one() -> None:
    admission, rounds = Admission(8), 0

    async def ask() -> list[StageLoad]:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise RuntimeError("a stage answered nonsense")
        return loads(0.4)

    watch = LimitUpdater(admission, ask, least_seconds=0.01)
    running = asyncio.create_task(watch.run())
    watch.changed()
    async with asyncio.timeout(5):
        while rounds < 1:
            await asyncio.sleep(0.001)
        watch.changed()
        while admission.limit == 8:
            await asyncio.sleep(0.001)
    running.cancel()
    assert admission.limit == 2


async def test_a_round_whose_answer_cannot_be_reckoned_with_is_not_the_last_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The limit stays as it is, and the next round counts."""
    admission, told = Admission(8), [StageLoad("llm", "0", Load(0.0))]

    async def ask() -> list[StageLoad]:
        return told

    watch = LimitUpdater(admission, ask, least_seconds=0.01)
    running = asyncio.create_task(watch.run())
    watch.changed()
    async with asyncio.timeout(5):
        while not caplog.records and not running.done():
            await asyncio.sleep(0.001)
        assert admission.limit == 8
        told = loads(0.4)
        watch.changed()
        while admission.limit == 8:
            assert not running.done()
            await asyncio.sleep(0.001)
    running.cancel()
    assert admission.limit == 2


def test_what_speech_costs_is_that_of_the_latest_half_minute() -> None:
    load = EngineLoad()
    assert load.now is None
    for _ in range(100):
        load.worked(0.5, 1.0)
    for _ in range(31):
        load.worked(0.1, 1.0)
    assert load.now is not None
    assert load.now.real_time_factor == pytest.approx(0.1)
    load.handed_out(late=True)
    load.handed_out(late=False)
    assert (load.now.pieces, load.now.late_pieces) == (2, 1)
    load.forget()
    assert load.now is None


def test_an_engine_that_shares_its_time_is_busy_while_anything_is_in() -> None:
    now, load = 0.0, EngineLoad()
    meter = BusyMeter(load, lambda: now)
    first = meter.begins()
    now = 1.0
    second = meter.begins()
    now = 3.0
    meter.made(first, 5.0)
    meter.ends(second)
    now = 4.0
    meter.ends(first)
    now = 100.0  # idle
    third = meter.begins()
    now = 101.0
    meter.made(third, 5.0)
    assert load.now is not None
    assert load.now.real_time_factor == pytest.approx(5.0 / 10.0)


def test_a_player_has_what_was_sent_less_what_it_has_played() -> None:
    now = 10.0
    playback = PlaybackClock(lambda: now)
    assert playback.left == 0.0
    playback.sent(1.0)
    now = 10.4
    playback.sent(0.5)
    assert playback.left == pytest.approx(1.1)
    now = 20.0
    assert playback.left == 0.0
    playback.sent(0.5)
    assert playback.left == pytest.approx(0.5)


async def test_a_place_without_text_goes_to_another_request() -> None:
    clock = [0.0]
    door = Admission(2, now=lambda: clock[0])
    places = [PreemptiblePlace(30.0, lambda: clock[0]) for _ in range(2)]
    with door.admit(preemptible=places[0]):
        clock[0] = 1.0
        with door.admit(preemptible=places[1]):
            places[0].used()
            with door.admit():
                assert [place.reclaimed for place in places] == [False, True]
                assert door.active == 2
                with pytest.raises(Overloaded, match="2 of 2 streams"), door.admit():
                    pass
                with pytest.raises(Overloaded, match=r"there was no text for 1\.0 s"):
                    await told(places[1])
            assert door.active == 1
        assert door.active == 1
    assert door.active == 0


async def told(place: PreemptiblePlace) -> None:
    async with asyncio.timeout(1):
        await place.until_reclaimed()


def test_a_place_whose_text_was_spoken_is_kept_for_the_idle_time() -> None:
    clock = [0.0]
    door = Admission(1, now=lambda: clock[0])
    place = PreemptiblePlace(30.0, lambda: clock[0])
    with door.admit(preemptible=place):
        place.used()
        clock[0] = 29.0
        with pytest.raises(Overloaded), door.admit():
            pass
        clock[0] = 31.0
        with door.admit():
            assert place.reclaimed


def test_nothing_is_taken_back_where_it_would_not_make_room() -> None:
    door = Admission(3)
    place = PreemptiblePlace(30.0)
    with door.admit(), door.admit(), door.admit(preemptible=place):
        door.limit = 2
        with pytest.raises(Overloaded), door.admit():
            pass
        assert not place.reclaimed
    assert door.active == 0


def test_a_place_whose_audio_is_taken_slowly_is_in_use() -> None:
    """And for the idle time after the caller has taken it."""
    clock = [0.0]
    door = Admission(1, now=lambda: clock[0])
    place = PreemptiblePlace(30.0, lambda: clock[0])
    with door.admit(preemptible=place):
        place.used()
        with place.sending():
            clock[0] = 50.0
            with pytest.raises(Overloaded), door.admit():
                pass
        clock[0] = 79.0
        with pytest.raises(Overloaded), door.admit():
            pass
        clock[0] = 81.0
        with door.admit():
            assert place.reclaimed
