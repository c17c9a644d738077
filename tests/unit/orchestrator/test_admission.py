"""Which requests are admitted, which are refused, and whether their retry hints come true."""

import asyncio
import contextlib
import heapq
import itertools
import math
import random
from collections.abc import AsyncIterator, Callable

import pytest

from cosyserve.engines.engine_load import EngineLoad, Load
from cosyserve.errors import Overloaded
from services.orchestrator.decode_ahead import PlaybackClock
from services.orchestrator.load_control.adaptive_limit import (
    BACK_OFF_SECONDS,
    RECOVER_SECONDS,
    SHARED_RECOVER_SECONDS,
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
    RequestKind,
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
        self.numbers = itertools.count()
        self.per_second = per_second
        self.hints: list[float] = []
        self.first_tries: list[bool] = []
        """For each refused caller, whether there was a place when it came back as the hint said."""
        self.idle_seconds = 0.0

    def at(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.numbers), event))

    def run(self, seconds: float) -> None:
        self.at(0.0, self.arrive)
        while self.events and self.events[0][0] < seconds:
            moment, _, event = heapq.heappop(self.events)
            self.idle_seconds += (moment - self.now) * (self.admission.limit - self.admission.active)
            self.now = moment
            event()

    def arrive(self) -> None:
        self.ask(self.dice.randint(1, 300), tries=0)
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


def test_most_callers_who_come_back_after_their_hint_find_a_place() -> None:
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


@pytest.fixture
def found() -> WaitEstimator:
    return WaitEstimator()


def test_the_hint_is_when_the_first_of_those_under_way_will_be_done(found: WaitEstimator) -> None:
    for seconds in (2.0, 2.0, 2.0):
        found.ends(found.begins(TEXT, 100, 0.0), seconds, completed=True)
    found.begins(TEXT, 100, 10.0)
    found.begins(TEXT, 300, 10.0)
    assert found.next_place(2, 11.0) == pytest.approx(1.0)
    assert found.next_place(2, 11.0) == pytest.approx(5.0)  # the next one gets the time of the other place
    assert found.next_place(2, 16.9) == pytest.approx(
        0.25 * 6.9
    )  # those whose hints are over have not come: the places are open


@pytest.mark.parametrize(
    ("kind", "sizes", "now", "hint"),
    [
        pytest.param(
            TEXT, (100, 200, 300), 0.0, 300 * TEXT.first_guess, id="the limit fell while three were under way"
        ),
        pytest.param(ARRIVING_TEXT, (1.0,), 4.0, 6.0, id="as expected"),
        pytest.param(ARRIVING_TEXT, (1.0,), 40.0, 10.0, id="longer than expected is waited for in proportion"),
    ],
)
def test_where_one_place_is_left_all_have_to_end(
    kind: RequestKind, sizes: tuple[float, ...], now: float, hint: float, found: WaitEstimator
) -> None:
    for size in sizes:
        found.begins(kind, size, 0.0)
    assert found.next_place(1, now) == pytest.approx(hint)


def test_hang_ups_and_early_ends_do_not_shorten_the_hint() -> None:
    """What those under way will take decides, however many left before."""
    now = 0.0
    admission = Admission(2, now=lambda: now)

    def hints() -> list[float]:
        with admission.admit(TEXT, 200) as text, admission.admit(ARRIVING_TEXT) as arriving:
            text.cut_short = arriving.cut_short = True
            return [hint_of(admission, TEXT, 200) for _ in range(4)]

    before = hints()
    now = 100.0

    for _ in range(200):
        now += 0.01
        with pytest.raises(asyncio.CancelledError), admission.admit(TEXT, 200):
            raise asyncio.CancelledError
        with admission.admit(ARRIVING_TEXT) as place:
            now += 0.01
            place.cut_short = True
    now += 100.0
    assert hints() == pytest.approx(before)
    assert before[0] == pytest.approx(200 * TEXT.first_guess)
    assert before[2] == pytest.approx(200 * TEXT.first_guess + (200 * TEXT.first_guess + ARRIVING_TEXT.first_guess) / 2)


def test_a_flood_of_refusals_keeps_no_list_of_all(found: WaitEstimator) -> None:
    found.begins(ANYTHING, 1.0, 0.0)
    for _ in range(1000):
        found.next_place(1, 0.0)
    assert len(found._promised) <= 2


def test_admission_gives_each_place_once_and_takes_it_back() -> None:
    admission = Admission(2)
    with admission.admit(), admission.admit():
        assert hint_of(admission) >= SHORTEST_SECONDS
    assert admission.active == 0
    with pytest.raises(RuntimeError, match="inside"), admission.admit():
        raise RuntimeError("inside")
    assert admission.active == 0


def test_a_limit_of_no_request_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Admission(0)


def hint_of(door: Admission, kind: RequestKind = ANYTHING, size: float = 1.0, message: str = "are in use") -> float:
    """Of a request that is refused."""
    with pytest.raises(Overloaded, match=message) as caught, door.admit(kind, size):
        raise AssertionError("one more was let in")
    return caught.value.retry_after or 0.0


def loads(rtf: float, *, llm: float = 0.05, pieces: int = 0, late: int = 0, replicas: int = 1) -> list[StageLoad]:
    return [
        StageLoad("llm", "0", Load(llm)),
        *(StageLoad("token2wav", str(at), Load(rtf, pieces, late)) for at in range(replicas)),
    ]


@pytest.mark.parametrize(
    ("most", "reported", "limit"),
    [
        (16, [], 16),
        (16, loads(0.2), int(USED_SHARE / 0.2)),
        (16, loads(0.2, replicas=2), 8),
        (16, loads(0.2, llm=0.5), 1),
        (16, loads(2.0), 1),
        (304, loads(0.0025, llm=0.0025), 304),
        # A replica that has spoken nothing counts as the others of its stage: without it one
        # request would be admitted, and the least busy choice would give each one to the first.
        (16, loads(0.5), 1),
        (16, [*loads(0.5), StageLoad("token2wav", "new", None)], int(USED_SHARE * 2 / 0.5)),
        (16, [StageLoad("token2wav", "new", None)], 16),
    ],
)
def test_as_many_are_admitted_as_the_slowest_stage_can_speak(most: int, reported: list[StageLoad], limit: int) -> None:
    assert AdaptiveLimit(most).of(reported, 0, 0.0) == limit


AFTER = 1.0 + BACK_OFF_SECONDS
STEPS = {
    "it follows what is measured": [
        (loads(rtf), 2, at, most) for at, (rtf, most) in enumerate([(0.1, 8), (0.2, 4), (0.3, 2), (0.1, 8)])
    ],
    "late pieces lower it below those under way, and it recovers one by one": [
        (loads(0.1, pieces=50, late=5), 6, 0.0, 8),  # of the time before
        (loads(0.1, pieces=100, late=8), 6, 1.0, 5),
        (loads(0.1, pieces=110, late=9), 6, 2.0, 5),  # not so soon again
        (loads(0.1, pieces=130, late=12), 5, AFTER, 4),
        *(
            (loads(0.1, pieces=130 + at, late=12), 4, AFTER + RECOVER_SECONDS * at, min(4 + at, 8))
            for at in range(1, 7)
        ),
    ],
    "it recovers while no request comes": [
        (loads(0.1, pieces=50), 2, 0.0, 8),
        (loads(0.1, pieces=60, late=5), 5, 1.0, 4),
        *(
            (loads(0.1, pieces=60, late=5), 1, 1.0 + periods * RECOVER_SECONDS, most)
            for periods, most in ((2.5, 6), (3, 7), (600, 8))
        ),
    ],
    "it is halved at most, and not for a single late piece": [
        (loads(0.1, pieces=50), 1, 0.0, 8),
        (loads(0.1, pieces=60, late=1), 1, 1.0, 8),
        (loads(0.1, pieces=70, late=3), 1, 2.0, 4),
        (loads(0.1, pieces=80, late=6), 1, 3.0 + BACK_OFF_SECONDS, 2),
    ],
    "a replica that was restarted is not late": [
        (loads(0.1, pieces=500, late=5), 4, 0.0, 8),
        (loads(0.1, pieces=3, late=1), 4, 10.0, 8),
    ],
}
"""What the stages report, how many requests are under way, when, and the limit from then on."""


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_the_limit_from_report_to_report(steps: list[tuple[list[StageLoad], int, float, int]]) -> None:
    limit = AdaptiveLimit(16)
    assert [limit.of(reported, active, now) for reported, active, now, _ in steps] == [most for *_, most in steps]


class Updated:
    """An admission whose limit follows `answer`; an exception is raised."""

    def __init__(self, answer: list[StageLoad] | Exception) -> None:
        self.answer, self.rounds = answer, 0
        self.admission = Admission(8)
        self.updater = LimitUpdater(self.admission, self._ask, least_seconds=0.01)

    async def _ask(self) -> list[StageLoad]:
        self.rounds += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.001)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.updater.run())
        self.updater.changed()
        yield
        await self.until(lambda: self.admission.limit != 8)
        assert not task.done()
        task.cancel()


def crowd(pieces: int, late: int) -> list[StageLoad]:
    """Of a GPU, on which streams share steps."""
    return [StageLoad("token2wav", "0", Load(0.5, pieces, late), shares_steps=True)]


def test_where_streams_share_steps_late_pieces_alone_lower_the_limit() -> None:
    limit, now = AdaptiveLimit(1000), 100.0
    assert limit.of(crowd(1000, 0), 300, now) == 1000  # whatever one stream costs
    assert limit.of(crowd(2000, 10), 300, now + 1) == 1000  # 1 % may be late by chance
    assert limit.of(crowd(3000, 30), 800, now + 2) == 640
    assert limit.of(crowd(4000, 60), 800, now + 3) == 640  # those of before are late still
    assert limit.of(crowd(5000, 90), 640, now + 2 + BACK_OFF_SECONDS) == 512
    later = now + 2 + BACK_OFF_SECONDS + SHARED_RECOVER_SECONDS
    assert limit.of(crowd(6000, 90), 192, later) == 537
    assert limit.of(crowd(7000, 90), 192, later + 2 * SHARED_RECOVER_SECONDS) == 591
    assert limit.of(crowd(8000, 90), 0, later + 1000 * SHARED_RECOVER_SECONDS) == 1000


def test_late_pieces_of_a_quiet_moment_halve_the_limit_at_most() -> None:
    limit, now = AdaptiveLimit(512), 100.0
    limit.of(crowd(0, 0), 2, now)
    assert limit.of(crowd(10, 2), 2, now + 1) == 256
    assert limit.of(crowd(20, 4), 2, now + 1 + BACK_OFF_SECONDS) == 128
    # Fifteen rises by a twentieth, in less than a minute.
    assert limit.of(crowd(30, 4), 2, now + 1 + BACK_OFF_SECONDS + 15 * SHARED_RECOVER_SECONDS) > 240


def test_an_engine_beside_it_that_takes_one_stream_at_a_time_still_limits() -> None:
    both = [*crowd(0, 0), StageLoad("llm", "0", Load(0.2))]
    assert AdaptiveLimit(1000).of(both, 0, 0.0) == int(USED_SHARE / 0.2)


async def test_the_limit_falls_below_those_who_were_under_way_when_a_piece_came_late() -> None:
    """They are over when the stages are asked."""
    updated = Updated(loads(0.1, pieces=100))
    async with updated.running():
        await updated.until(lambda: updated.rounds > 0)
        updated.answer = loads(0.1, pieces=150, late=20)
        with contextlib.ExitStack() as places:
            for _ in range(4):
                places.enter_context(updated.admission.admit())
    assert updated.admission.limit == 4


@pytest.mark.parametrize("answer", [RuntimeError("a stage answered nonsense"), [StageLoad("llm", "0", Load(0.0))]])
async def test_a_round_that_fails_is_not_the_last_one(
    answer: list[StageLoad] | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit stays as it is, and the next round counts."""
    updated = Updated(answer)
    async with updated.running():
        await updated.until(lambda: bool(caplog.records))
        assert updated.admission.limit == 8
        updated.answer = loads(0.4)
        updated.updater.changed()
    assert updated.admission.limit == 2


def test_what_speech_costs_is_that_of_the_latest_half_minute() -> None:
    load = EngineLoad()
    assert load.now is None
    for _ in range(100):
        load.worked(0.5, 1.0)
    for _ in range(31):
        load.worked(0.1, 1.0)
    assert load.now.real_time_factor == pytest.approx(0.1)
    load.handed_out(late=True)
    load.handed_out(late=False)
    assert (load.now.pieces, load.now.late_pieces) == (2, 1)
    load.forget()
    assert load.now is None


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
                assert [place.reclaimed.is_set() for place in places] == [False, True]
                assert door.active == 2
                assert hint_of(door, message="2 of 2 streams") >= SHORTEST_SECONDS
                with pytest.raises(Overloaded, match=r"there was no text for 1\.0 s"):
                    await asyncio.wait_for(places[1].until_reclaimed(), 1)
            assert door.active == 1
        assert door.active == 1
    assert door.active == 0


def test_nothing_is_taken_back_where_it_would_not_make_room() -> None:
    door = Admission(3)
    place = PreemptiblePlace(30.0)
    with door.admit(), door.admit(), door.admit(preemptible=place):
        door.limit = 2
        assert hint_of(door) >= SHORTEST_SECONDS
        assert not place.reclaimed.is_set()
    assert door.active == 0


@pytest.mark.parametrize("sending_until", [0.0, 50.0])
def test_a_place_is_kept_for_the_idle_time_after_its_text_and_while_its_audio_is_taken(sending_until: float) -> None:
    """However slowly the caller takes it."""
    clock = [0.0]
    door = Admission(1, now=lambda: clock[0])
    place = PreemptiblePlace(30.0, lambda: clock[0])

    with door.admit(preemptible=place):
        place.used()
        if sending_until:
            with place.sending():
                clock[0] = sending_until
                assert hint_of(door) >= SHORTEST_SECONDS
        clock[0] = sending_until + 29.0
        assert hint_of(door) >= SHORTEST_SECONDS
        assert not place.reclaimed.is_set()
        clock[0] = sending_until + 31.0
        with door.admit():
            assert place.reclaimed.is_set()
