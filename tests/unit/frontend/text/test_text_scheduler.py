"""Scheduling of text work. The clock of these tests counts pieces of work, so that nothing depends
on the machine.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from cosyserve.errors import Overloaded
from services.frontend.text import text_scheduler as module
from services.frontend.text.text_scheduler import Caller, TextScheduler, yield_turn
from tests.unit.frontend.models import until


class Pieces:
    """Counted work: the clock is the number of finished pieces, the log names their callers."""

    def __init__(self, workers: int = 1, least: int = 1) -> None:
        self.done: list[str] = []
        self.scheduler = TextScheduler(
            ThreadPoolExecutor(32), workers, least_seconds=least, now=lambda: float(len(self.done))
        )

    def of(self, name: str, count: int) -> Callable[[], int]:
        def work() -> int:
            for _ in range(count):
                self.done.append(name)
                yield_turn()
            return count

        return work

    async def start(self, name: str, count: int, caller: Caller | None = None) -> "asyncio.Task[int]":
        """The work is under way and known to the scheduler when this returns."""
        before = self.known
        task = asyncio.create_task(self.scheduler.run(caller or Caller(), self.of(name, count)))
        await until(lambda: self.known != before or task.done())
        return task

    @property
    def known(self) -> int:
        return len(self.scheduler._waiting) + len(self.scheduler._working)


class Held(Pieces):
    """No turn is granted before `open`, so that all callers are waiting by then."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler._free = 0

    def open(self) -> None:
        with self.scheduler._lock:
            self.scheduler._free = 1
            self.scheduler._grant()


async def test_callers_with_as_much_to_do_are_served_in_turn() -> None:
    pieces = Held()
    tasks = [await pieces.start(str(number), 30) for number in range(8)]
    pieces.open()
    assert await asyncio.gather(*tasks) == [30] * 8
    counts = [0] * 8
    for name in pieces.done:
        counts[int(name)] += 1
        assert max(counts) - min(counts) <= 3


@pytest.mark.parametrize("least", [1, 4])
async def test_a_short_text_among_eight_long_ones_waits_for_one_turn_at_most(least: int) -> None:
    pieces = Held()
    pieces.scheduler._least_seconds = least
    callers = [Caller() for _ in range(8)]
    for caller in callers:
        caller.seconds = 10.0
    tasks = [await pieces.start("long", 400, caller) for caller in callers]
    tasks.append(await pieces.start("short", 3))
    pieces.open()
    await asyncio.gather(*tasks)
    # Its own three pieces, and one turn of the caller who has waited longest.
    assert max(place for place, name in enumerate(pieces.done) if name == "short") < 3 + least
    assert len(pieces.done) == 3203


async def test_what_a_caller_was_away_for_does_not_count_against_it() -> None:
    pieces, stayed, returned = Held(), Caller(), Caller()
    moment = 0.0
    pieces.scheduler._clock = lambda: moment
    stayed.seconds, stayed.left = 500.0, 0.0
    returned.seconds, returned.left = 500.0, 0.0
    tasks = [await pieces.start("stayed", 100, stayed)]
    moment = 480.0
    tasks.append(await pieces.start("returned", 100, returned))
    pieces.open()
    await asyncio.gather(*tasks)
    assert returned.seconds == 120.0
    assert pieces.done[:130].count("returned") >= 95


async def test_callers_with_less_do_not_hold_one_with_more_up_for_good() -> None:
    pieces, long = Held(), Caller()
    long.seconds = 100_000.0
    tasks = [await pieces.start("long", 20, long), *[await pieces.start("short", 1000) for _ in range(3)]]
    pieces.open()
    await asyncio.gather(*tasks)
    # Each fourth turn goes to the one of four who has waited longest.
    assert max(place for place, name in enumerate(pieces.done) if name == "long") <= 20 * 16


async def test_hanging_up_ends_the_work_where_it_gives_way_and_frees_the_turn() -> None:
    pieces = Held()
    leaving, waiting = await pieces.start("leaves", 1_000_000), await pieces.start("waits", 5)
    pieces.open()
    await until(lambda: "leaves" in pieces.done)
    leaving.cancel()
    assert await waiting == 5
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await until(lambda: not pieces.known and not pieces.scheduler._calls)
    assert len(pieces.done) < 1_000_000
    assert pieces.scheduler._free == 1


async def test_who_hangs_up_while_waiting_leaves_at_once() -> None:
    pieces = Held()
    leaving = await pieces.start("leaves", 5)
    leaving.cancel()
    await until(lambda: not pieces.scheduler._calls)
    pieces.open()
    assert await pieces.scheduler.run(Caller(), pieces.of("stays", 2)) == 2
    assert pieces.done == ["stays"] * 2


async def test_a_failure_frees_the_turn_and_reaches_the_caller() -> None:
    pieces = Pieces()

    def fail() -> None:
        yield_turn()
        raise ValueError("no such text")

    with pytest.raises(ValueError, match="no such text"):
        await pieces.scheduler.run(Caller(), fail)
    assert await pieces.scheduler.run(Caller(), pieces.of("next", 1)) == 1


async def test_more_callers_than_there_are_threads_are_refused_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CALLS", 3)
    pieces = Held()
    tasks = [await pieces.start("text", 1) for _ in range(3)]
    with pytest.raises(Overloaded, match="3 of 3 texts are being read") as refused:
        await pieces.scheduler.run(Caller(), pieces.of("text", 1))
    assert refused.value.retry_after == 1.0
    pieces.open()
    await asyncio.gather(*tasks)


async def test_as_many_turns_are_held_at_once_as_there_are_workers() -> None:
    pieces = Pieces(workers=3)
    pieces.scheduler._free = 0
    tasks = [await pieces.start("text", 1) for _ in range(5)]
    with pieces.scheduler._lock:
        pieces.scheduler._free = 3
        pieces.scheduler._grant()
        assert (len(pieces.scheduler._working), pieces.scheduler.granted) == (3, 3)
    await asyncio.gather(*tasks)


def test_outside_of_turns_nothing_gives_way() -> None:
    yield_turn()
    with pytest.raises(ValueError, match="workers is 0"):
        TextScheduler(ThreadPoolExecutor(1), 0)
