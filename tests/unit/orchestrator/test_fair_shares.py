"""Places of a full server among keys: by weight and class, none empty that may be given, few that
wait; and with one key as without any.
"""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from cosyserve.errors import Overloaded
from services.orchestrator.load_control.admission import Admission
from services.orchestrator.load_control.fair_shares import FairShares, Holder, Share
from tests.stacks.virtual_time import Clock

A, B, C = Share("a"), Share("b"), Share("c")


def taken(shares: FairShares, share: Share, most: int = 100) -> Holder:
    """The key takes as many places as it may have."""
    holder = shares.holder(share)
    while shares.has_room(holder) and holder.active < most:
        shares.take(holder)
    return holder


def test_one_key_has_all_places_and_nothing_is_kept_from_it() -> None:
    shares = FairShares(8, 5.0, Clock(50.0))
    holder = taken(shares, A)
    assert (holder.active, shares.active, shares.contended(holder)) == (8, 8, False)
    shares.leave(holder)
    assert shares.has_room(shares.holder(A))


@pytest.mark.parametrize(
    ("weights", "places"), [((1, 1), (4, 4)), ((3, 1), (6, 2)), ((1, 7), (1, 7)), ((1, 99), (1, 7))]
)
def test_a_share_is_that_of_the_weight_and_at_least_one_place(
    weights: tuple[int, int], places: tuple[int, int]
) -> None:
    shares = FairShares(8)
    first, second = (taken(shares, Share(name, weight), most=1) for name, weight in zip("ab", weights, strict=True))
    assert (shares.places_of(first), shares.places_of(second)) == places


def test_what_one_key_does_not_use_another_may() -> None:
    shares = FairShares(8, 5.0, Clock(50.0))
    few = taken(shares, B, most=2)
    assert taken(shares, A).active == 6
    assert few.active == 2


def test_a_place_that_was_just_left_is_kept_for_its_key_for_a_time() -> None:
    clock = Clock(50.0)
    shares = FairShares(8, 5.0, clock)
    few = taken(shares, B, most=2)
    many = taken(shares, A)
    shares.leave(few)
    shares.leave(few)
    assert not shares.has_room(many)
    assert shares.has_room(shares.holder(B))
    clock.now += 5.1
    assert shares.has_room(shares.holder(A))
    assert taken(shares, A).active == 8


def test_no_more_is_kept_than_the_share_of_a_key() -> None:
    shares = FairShares(8, 5.0, Clock(50.0))
    many, few = taken(shares, A, most=7), taken(shares, B, most=1)
    for _ in range(7):
        shares.leave(many)
    assert taken(shares, B).active == 4
    assert few.active == 4


def test_many_keys_that_left_do_not_lock_a_new_one_out() -> None:
    shares = FairShares(4, 5.0, Clock(50.0))
    for number in range(50):
        holder = shares.holder(Share(f"key{number}"))
        shares.take(holder)
        shares.leave(holder)
    assert shares.has_room(shares.holder(Share("new")))


def test_a_less_urgent_key_takes_nothing_from_a_more_urgent_one() -> None:
    shares = FairShares(8, 5.0, Clock(50.0))
    batch, urgent = taken(shares, Share("batch", priority=1), most=4), shares.holder(Share("urgent"))
    shares.take(urgent)
    assert shares.places_of(urgent) == 8
    assert shares.places_of(batch) == 4
    for _ in range(3):
        shares.take(urgent)
    for _ in range(4):
        shares.leave(urgent)
    assert not shares.has_room(batch)


def test_keys_without_a_share_are_forgotten() -> None:
    clock = Clock(50.0)
    shares = FairShares(2, 5.0, clock)
    for number in range(1_000):
        holder = shares.holder(Share(f"key{number}"))
        shares.take(holder)
        shares.leave(holder)
        clock.now += 1
    assert len(shares._holders) <= 7


class Callers:
    """Requests as tasks; each holds its place until it is let go."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._ends: list[tuple[str, asyncio.Event]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.served: list[str] = []

    async def ask(self, share: Share) -> asyncio.Task[None]:
        async def request() -> None:
            async with self._admission.admit_in_turn(share):
                self.served.append(share.key)
                end = asyncio.Event()
                self._ends.append((share.key, end))
                await end.wait()

        task = asyncio.create_task(request())
        self.tasks.append(task)
        for _ in range(6):
            await asyncio.sleep(0)
        return task

    async def end_one(self, key: str) -> None:
        place = next(place for place, (name, _) in enumerate(self._ends) if name == key)
        self._ends.pop(place)[1].set()
        for _ in range(6):
            await asyncio.sleep(0)


@contextlib.contextmanager
def callers(admission: Admission) -> Iterator[Callers]:
    found = Callers(admission)
    try:
        yield found
    finally:
        for task in found.tasks:
            task.cancel()


@pytest.mark.parametrize("share", [Share(), A])
async def test_with_one_key_a_full_server_refuses_at_once(share: Share) -> None:
    admission = Admission(2, wait_seconds=60.0, kept_seconds=60.0)
    with callers(admission) as asking:
        for _ in range(2):
            await asking.ask(share)
        refused = await asking.ask(share)
        assert refused.done()
        with pytest.raises(Overloaded, match="2 of 2 streams are in use; try again in"):
            refused.result()


async def test_a_key_below_its_share_is_next_and_the_others_wait_behind_it() -> None:
    admission = Admission(4, wait_seconds=60.0, kept_seconds=60.0)
    with callers(admission) as asking:
        for _ in range(4):
            await asking.ask(A)
        first = await asking.ask(B)
        await asking.ask(A)  # another key waits: this one may, too
        second = await asking.ask(B)
        assert not first.done()
        await asking.end_one("a")
        await asking.end_one("a")
        assert asking.served == ["a", "a", "a", "a", "b", "b"]
        await asking.end_one("a")
        assert asking.served[-1] == "a"
        assert not second.done()


async def test_waiting_is_bounded_in_number_and_time() -> None:
    admission = Admission(4, wait_seconds=0.05, kept_seconds=60.0)
    with callers(admission) as asking:
        for _ in range(4):
            await asking.ask(A)
        waiting = [await asking.ask(B) for _ in range(4)]
        assert [task.done() for task in waiting] == [False, False, True, True]
        await asyncio.wait(waiting, timeout=10)
        for task in waiting:
            with pytest.raises(Overloaded) as caught:
                task.result()
            assert caught.value.retry_after
    assert admission.active <= 4


async def test_a_more_urgent_request_takes_the_turn_of_one_that_waits() -> None:
    admission = Admission(2, wait_seconds=60.0)
    batch = Share("batch", priority=1)
    with callers(admission) as asking:
        await asking.ask(A)
        await asking.ask(A)
        late = [await asking.ask(Share(f"batch{number}", priority=1)) for number in range(2)]
        assert not any(task.done() for task in late)
        await asking.ask(B)
        assert [task.done() for task in late].count(True) == 1
        await asking.end_one("a")
        assert asking.served[-1] == "b"
        await asking.ask(batch)


async def test_a_caller_that_hangs_up_while_it_waits_leaves_nothing() -> None:
    admission = Admission(2, wait_seconds=60.0)
    with callers(admission) as asking:
        await asking.ask(A)
        await asking.ask(A)
        left, stays = await asking.ask(B), await asking.ask(C)
        left.cancel()
        await asyncio.wait((left,))
        await asking.end_one("a")
        assert asking.served == ["a", "a", "c"]
        assert not stays.done()
    await asyncio.wait(asking.tasks)
    assert admission.active == 0


async def test_a_place_that_is_given_to_a_caller_that_hangs_up_is_not_lost() -> None:
    """The place and the cancellation come in one step of the event loop."""
    admission = Admission(1, wait_seconds=60.0)
    async with admission.admit_in_turn(A):

        async def wait() -> None:
            async with admission.admit_in_turn(B):
                pass

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        place = admission.admit_in_turn(A)
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert admission.active == 0
    async with place:
        assert admission.active == 1


async def test_a_higher_limit_serves_those_who_wait() -> None:
    admission = Admission(1, wait_seconds=60.0)
    with callers(admission) as asking:
        await asking.ask(A)
        await asking.ask(B)
        admission.limit = 2
        for _ in range(5):
            await asyncio.sleep(0)
        assert asking.served == ["a", "b"]
