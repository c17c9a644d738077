"""The circuit breaker of a replica: when it opens, when a probe is allowed, and that the last
replica of a stage stays in use until it really fails.
"""

from dataclasses import dataclass, field

import pytest

from cosyserve import errors
from cosyserve.rpc.load.breaker import BreakerRules, CircuitBreaker, Verdict, admitted, verdict_of
from tests.stacks.virtual_time import Clock

RULES = BreakerRules(failures=3, share=0.5, least_calls=10, window_seconds=10.0, open_seconds=2.0, longest_seconds=5.0)


@dataclass
class Bench:
    """A breaker on a clock of its own."""

    clock: Clock = field(default_factory=lambda: Clock(100.0))
    opened: list[float] = field(default_factory=list)
    breaker: CircuitBreaker = field(init=False)

    def __post_init__(self) -> None:
        self.breaker = CircuitBreaker("llm", "here", RULES, opened=self.opened.append, now=self.clock)

    def call(self, verdict: Verdict) -> None:
        attempt = self.breaker.begins()
        self.clock.now += 0.1
        self.breaker.ends(attempt, verdict)


@pytest.mark.parametrize("verdict", [Verdict.FAILURE, Verdict.GONE])
def test_failures_in_a_row_open_it_and_a_probe_closes_it(verdict: Verdict) -> None:
    bench = Bench()
    for _ in range(3):
        assert bench.breaker.admits
        bench.call(verdict)
    assert not bench.breaker.admits
    assert bench.opened == [2.0]
    bench.clock.now += 2.0
    assert bench.breaker.admits
    attempt = bench.breaker.begins()
    assert not bench.breaker.admits  # one probe at a time
    bench.breaker.ends(attempt, Verdict.SUCCESS)
    assert bench.breaker.is_closed


def test_a_success_starts_the_row_again() -> None:
    bench = Bench()
    for verdict in [Verdict.FAILURE, Verdict.FAILURE, Verdict.SUCCESS, Verdict.FAILURE, Verdict.FAILURE]:
        bench.call(verdict)
    assert bench.breaker.is_closed


def test_half_of_the_calls_failing_open_it() -> None:
    bench = Bench()
    for _ in range(5):
        bench.call(Verdict.SUCCESS)
        assert bench.breaker.is_closed
        bench.call(Verdict.FAILURE)
    assert not bench.breaker.admits


def test_calls_that_end_with_their_caller_say_nothing() -> None:
    bench = Bench()
    for _ in range(20):
        bench.call(Verdict.NOTHING)
    assert bench.breaker.is_closed


def test_all_streams_of_a_replica_that_dies_are_one_failure() -> None:
    """A process that is started again would otherwise get no calls although it is new."""
    bench = Bench()
    attempts = [bench.breaker.begins() for _ in range(50)]
    bench.clock.now += 1.0
    for attempt in attempts:
        bench.breaker.ends(attempt, Verdict.GONE)
    assert bench.breaker.is_closed


def test_a_probe_that_fails_doubles_the_time_up_to_the_longest() -> None:
    bench = Bench()
    for _ in range(3):
        bench.call(Verdict.FAILURE)
    for _ in range(3):
        bench.clock.now += 10.0
        bench.call(Verdict.FAILURE)
    assert bench.opened == [2.0, 4.0, 5.0, 5.0]


def test_a_probe_that_is_hung_up_on_leaves_the_place_for_another() -> None:
    bench = Bench()
    for _ in range(3):
        bench.call(Verdict.FAILURE)
    bench.clock.now += 2.0
    bench.call(Verdict.NOTHING)
    assert bench.breaker.admits


def test_a_replica_whose_health_was_lost_and_found_gets_a_probe_at_once() -> None:
    bench = Bench()
    for _ in range(3):
        bench.call(Verdict.FAILURE)
    bench.breaker.found_again()
    assert bench.breaker.admits
    bench.call(Verdict.SUCCESS)
    assert bench.breaker.is_closed


@dataclass(eq=False)
class Guarded:
    bench: Bench

    @property
    def breaker(self) -> CircuitBreaker:
        return self.bench.breaker


def test_an_open_replica_gets_nothing_while_another_one_serves() -> None:
    good, bad = Guarded(Bench()), Guarded(Bench())
    for _ in range(3):
        bad.bench.call(Verdict.FAILURE)
    assert admitted([good, bad], [good, bad]) == [good]
    assert admitted([bad], [good, bad]) == []


def test_the_last_replica_is_used_until_it_has_failed_twice_as_often() -> None:
    last = Guarded(Bench())
    for _ in range(5):
        last.bench.call(Verdict.FAILURE)
        assert admitted([last], [last]) == [last]
    last.bench.call(Verdict.FAILURE)
    assert admitted([last], [last]) == []
    assert last.breaker.seconds_to_probe > 0
    last.bench.clock.now += 10.0
    assert admitted([last], [last]) == [last]


def test_a_breaker_that_is_turned_off_never_opens() -> None:
    breaker = CircuitBreaker(rules=BreakerRules(failures=0))
    for _ in range(100):
        breaker.ends(breaker.begins(), Verdict.FAILURE)
    assert breaker.admits


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (errors.Unavailable("x"), Verdict.GONE),
        (errors.DeadlineExceeded("x"), Verdict.GONE),
        (errors.InternalFault("x"), Verdict.FAILURE),
        (errors.Silence("x"), Verdict.NOTHING),
        (errors.Overloaded("x"), Verdict.NOTHING),
        (errors.InvalidRequest("x"), Verdict.NOTHING),
        (errors.CallersDeadline("x"), Verdict.NOTHING),
    ],
)
def test_what_an_error_says_about_its_replica(error: errors.CosyserveError, verdict: Verdict) -> None:
    assert verdict_of(error) is verdict
