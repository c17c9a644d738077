"""Who is to blame when engines are lost: the request that was there twice, never one that was there
by coincidence.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

import pytest

from cosyserve.errors import PeerLost, Quarantined, Silence, Unavailable
from services.orchestrator.faults.quarantine import MOST_KEPT, MOST_TOGETHER, Quarantine
from services.orchestrator.faults.work import Work
from tests.stacks.virtual_time import Clock


def lose(quarantine: Quarantine, replica: str, *keys: str) -> None:
    """An engine process is lost with this work."""
    works = [Work(key, f"request {key}") for key in keys]

    def nested(left: Sequence[Work]) -> None:
        if not left:
            raise PeerLost("gone")
        with quarantine.computing(replica, left[0]):
            nested(left[1:])

    with contextlib.suppress(PeerLost):
        nested(works)


def complete(quarantine: Quarantine, key: str) -> None:
    with quarantine.computing("a healthy one", Work(key)):
        pass


def refused(quarantine: Quarantine, key: str) -> bool:
    try:
        quarantine.require_allowed(key)
    except Quarantined:
        return True
    return False


def test_the_second_engine_lost_with_one_request_alone_puts_it_into_quarantine() -> None:
    quarantine = Quarantine()
    lose(quarantine, "a", "bad")
    assert not refused(quarantine, "bad")
    lose(quarantine, "b", "bad")
    assert refused(quarantine, "bad")
    assert refused(quarantine, "request bad")


def test_the_refusal_says_for_how_long_and_ends() -> None:
    clock = Clock()
    quarantine = Quarantine(seconds=60.0, now=clock)
    lose(quarantine, "a", "bad")
    lose(quarantine, "b", "bad")
    clock.now = 20.0
    with pytest.raises(Quarantined, match=r"2 engines were lost while they spoke this text.* another 40 s") as caught:
        quarantine.require_allowed("bad")
    assert caught.value.retry_after == 40.0
    clock.now = 60.0
    assert not refused(quarantine, "bad")


def test_streams_that_died_with_it_are_not_blamed() -> None:
    """Thirty streams lose one engine together; the bad one takes a second engine down, with twenty
    others on it.
    """
    quarantine = Quarantine()
    innocent = [f"first {number}" for number in range(30)]
    lose(quarantine, "a", "bad", *innocent)
    for key in innocent:
        complete(quarantine, key)
    others = [f"second {number}" for number in range(20)]
    lose(quarantine, "b", "bad", *others)
    assert refused(quarantine, "bad")
    assert not any(refused(quarantine, key) for key in innocent + others)


async def test_suspects_that_lose_a_second_engine_together_are_tried_one_at_a_time() -> None:
    quarantine = Quarantine()
    lose(quarantine, "a", "bad", "good")
    lose(quarantine, "b", "good", "bad")
    assert not refused(quarantine, "bad")
    assert not refused(quarantine, "good")
    async with quarantine.in_turn(Work("good"), 1.0):
        with pytest.raises(Unavailable, match="others with which they were lost are tried first"):
            async with quarantine.in_turn(Work("bad"), 0.01):
                pass
        async with quarantine.in_turn(Work("another text"), 0.01):
            complete(quarantine, "good")
    async with quarantine.in_turn(Work("bad"), 1.0):
        lose(quarantine, "c", "bad", "another text")
    assert refused(quarantine, "bad")
    assert not refused(quarantine, "good")
    assert not refused(quarantine, "another text")


async def test_a_suspect_that_waited_is_refused_if_it_was_blamed_meanwhile() -> None:
    quarantine = Quarantine()
    for replica in ("a", "b"):
        lose(quarantine, replica, "bad", "good")
    async with quarantine.in_turn(Work("bad"), 1.0):

        async def the_same_text_of_another_caller() -> None:
            async with quarantine.in_turn(Work("bad"), 1.0):
                pytest.fail("it was computed")

        waiting = asyncio.create_task(the_same_text_of_another_caller())
        await asyncio.sleep(0)
        lose(quarantine, "c", "bad")
    with pytest.raises(Quarantined):
        await waiting


def test_what_completes_is_innocent() -> None:
    quarantine = Quarantine()
    lose(quarantine, "a", "good")
    complete(quarantine, "good")
    lose(quarantine, "b", "good")
    assert not refused(quarantine, "good")


def test_what_fails_a_guard_has_done_no_harm_to_its_engine() -> None:
    quarantine = Quarantine()
    lose(quarantine, "a", "good")
    with contextlib.suppress(Silence), quarantine.computing("b", Work("good")):
        raise Silence("nothing can be heard")
    lose(quarantine, "c", "good")
    assert not refused(quarantine, "good")


def test_a_failure_of_the_machines_is_no_fault_of_requests() -> None:
    """Many streams move together from one lost node to the next; nothing is refused, nothing has to
    wait.
    """
    quarantine = Quarantine()
    streams = [str(number) for number in range(MOST_TOGETHER + 1)]
    for replica in ("a", "b", "c"):
        lose(quarantine, replica, *streams)
    assert not any(refused(quarantine, key) for key in streams)
    assert not any(suspect.alone for suspect in quarantine._suspects.values())


def test_the_same_loss_is_counted_once_however_many_streams_report_it() -> None:
    quarantine = Quarantine()

    @contextlib.contextmanager
    def stream(key: str) -> Iterator[None]:
        with contextlib.suppress(PeerLost), quarantine.computing("a", Work(key)):
            yield
            raise PeerLost("gone")

    with stream("one"), stream("two"):
        pass
    assert not refused(quarantine, "one")
    assert not refused(quarantine, "two")
    assert {suspect.engines for suspect in quarantine._suspects.values()} == {1}


def test_a_suspect_is_kept_from_replicas_with_another_one() -> None:
    quarantine = Quarantine()
    lose(quarantine, "a", "one", "two")
    with quarantine.computing("b", Work("one")), quarantine.computing("c", Work("fresh")):
        assert list(quarantine.crowded(Work("two"))) == ["b"]
        assert list(quarantine.crowded(Work("fresh"))) == []


def test_suspicion_expires() -> None:
    clock = Clock()
    quarantine = Quarantine(seconds=60.0, now=clock)
    lose(quarantine, "a", "unlucky")
    clock.now = 61.0
    lose(quarantine, "b", "unlucky")
    assert not refused(quarantine, "unlucky")


def test_the_tables_are_bounded() -> None:
    quarantine = Quarantine()
    for number in range(2 * MOST_KEPT):
        lose(quarantine, "a", f"once {number}")
        for replica in "bc":
            lose(quarantine, replica, f"twice {number}")
    assert len(quarantine._suspects) <= MOST_KEPT
    assert len(quarantine._refused) <= MOST_KEPT
    assert quarantine._running == {}


@pytest.mark.parametrize("engines", [0, 1, 3])
def test_how_many_engines_may_be_lost_is_a_setting(engines: int) -> None:
    quarantine = Quarantine(engines)
    lost = 0
    while not refused(quarantine, "bad") and lost < 5:
        lose(quarantine, f"engine {lost}", "bad")
        lost += 1
    assert lost == (engines or 5)
