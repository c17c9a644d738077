"""Which replica gets the next call; several orchestrators in virtual time do not run after the same
one.
"""

import random

import pytest

from bench.replica_choice import LOADS, Simulation, by_own_calls, by_report_alone, by_truth, of_the_product
from cosyserve.rpc.load.reported import Balanced, CallCounts, Reported, caller_of, least_busy, new_caller

SECONDS = 200.0


def of(calls: int, others: float | None = None, *, capacity: int = 0, callers: int = 1, begun: int = 0) -> Balanced:
    """A replica with as many calls of this process; others: as it reported."""
    reported = None if others is None else Reported(others, capacity, callers, begun=calls - begun)
    return Balanced(calls, calls, reported)


@pytest.mark.parametrize(
    ("replicas", "chosen"),
    [
        ([of(1), of(0), of(0)], 1),
        ([of(0, 5), of(3, 0)], 1),
        ([of(0, 2), of(0, 2)], 0),
        ([of(1, 1), of(0, 2)], 0),
        # By shares of what each can serve: 5 of 16 is less than 2 of 4.
        ([of(1, 0, capacity=4), of(4, 0, capacity=16)], 1),
        ([of(1, 0, capacity=4), of(4, 0)], 0),
        # Each of two others has begun as many as this process has since the report: 1 + 2 x 2.
        ([of(2, 1, callers=3, begun=2), of(1, 5, callers=3)], 1),
        ([of(2, 1, callers=3, begun=2), of(1, 7, callers=3)], 0),
        # One of an earlier release has as many calls of others as the rest have on average: 4.
        ([of(1), of(0, 4)], 1),
        ([of(0), of(1, 4), of(1, 4)], 0),
        ([of(3), of(0, 6), of(0, 2)], 2),
    ],
)
def test_the_next_call_goes_where_it_is_least_felt(replicas: list[Balanced], chosen: int) -> None:
    assert least_busy(replicas) is replicas[chosen]


def test_of_none_there_is_none_and_of_one_it_is_that() -> None:
    assert least_busy([]) is None
    one = of(9, 9, callers=3)
    assert least_busy([one]) is one


def test_of_equal_ones_any_is_taken_if_other_callers_choose_too() -> None:
    random.seed(1)
    replicas = [of(1, 2, callers=2) for _ in range(3)]
    chosen = [least_busy(replicas) for _ in range(300)]
    assert all(70 < sum(each is replica for each in chosen) < 130 for replica in replicas)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("gap", [0.2, 1.0])
def test_three_orchestrators_load_three_replicas_evenly(load: str, gap: float) -> None:
    """Nearly as by the true load, which no caller can know; and each replica gets its third."""
    random.seed(2)
    best, ours = (Simulation(LOADS[load], choice, gap=gap).run(SECONDS) for choice in (by_truth, of_the_product))
    assert ours.difference < best.difference + (0.8 if gap < 1 else 1.6)
    assert max(ours.begun) < 1.1 * sum(ours.begun) / 3


def test_reports_alone_and_own_calls_alone_do_not() -> None:
    random.seed(3)

    def difference(load: str, choice: object) -> float:
        return Simulation(LOADS[load], choice).run(SECONDS).difference  # type: ignore[arg-type]

    assert difference("thirty at once", by_report_alone) > 3 * difference("thirty at once", of_the_product)
    assert difference("a dozen calls", by_own_calls) > 1.4 * difference("a dozen calls", of_the_product)


def test_calls_are_counted_for_each_caller_and_forgotten() -> None:
    counts = CallCounts()
    _, one = new_caller()
    _, other = new_caller()
    assert caller_of((("a", b"b"), ("user-agent", f"{one} grpc-python/1.85 grpc-c/53"))) == one
    assert caller_of((("user-agent", "grpc-node/1.2"),)) == ""
    assert caller_of(None) == ""
    with counts.counted(one), counts.counted(one), counts.counted(other), counts.counted(""):
        assert (counts.total, counts.others_than(one), counts.others_than(other)) == (4, 2, 3)
        assert (counts.others_than(""), counts.others_than("cosyserve-caller/new")) == (4, 4)
    assert (counts.total, counts.own()) == (0, {})
