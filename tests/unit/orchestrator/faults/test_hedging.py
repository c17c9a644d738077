"""Which calls are hedged: late ones, of methods whose usual times are known, and few."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from grpc.aio import Metadata

from cosyserve.rpc.replicas import Replica, ReplicaSet
from services.orchestrator.faults.hedging import Hedging, first_answer


def test_a_method_is_hedged_behind_the_95th_percentile_of_its_latest_times() -> None:
    hedging = Hedging(0.02)
    for _ in range(19):
        assert hedging.begins("Analyze") is None
        hedging.answered("Analyze", 0.1)
    assert hedging.begins("GetVoice") is None
    times = [number / 1000 for number in range(1, 129)]
    random.Random(1).shuffle(times)
    for seconds in times:
        hedging.answered("Analyze", seconds)
    assert hedging.begins("Analyze") == pytest.approx(0.122)


def test_at_most_its_share_of_the_calls() -> None:
    hedging = Hedging(0.02)
    hedged = 0
    for _ in range(5000):
        hedging.begins("Analyze")
        hedged += hedging.spend()
    assert 98 <= hedged <= 100


def test_what_was_saved_is_bounded() -> None:
    hedging = Hedging(0.1)
    for _ in range(10_000):
        hedging.begins("Analyze")
    assert sum(hedging.spend() for _ in range(100)) == 10


def test_without_a_share_nothing_is_hedged() -> None:
    hedging = Hedging(0.0)
    for _ in range(100):
        hedging.answered("Analyze", 0.1)
        assert hedging.begins("Analyze") is None


class Pair(ReplicaSet):
    """Two replicas that serve, without a network."""

    def __init__(self) -> None:
        self.stage, self._behind = "frontend", [[Replica(name, None) for name in "ab"]]  # type: ignore[arg-type]
        self._gone: set[Replica] = set()
        for replica in self.replicas:
            replica.serving = True
        self.suspected: list[str] = []

    def suspect(self, replica: Replica) -> None:
        self.suspected.append(replica.target)


def failure(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, Metadata(), Metadata(), details="so it is")


Ask = Callable[[Replica], Awaitable[str]]


async def hedged(pair: Pair, ask: Ask, discarded: list[str], hedging: Hedging | None = None) -> str:
    if hedging is None:
        hedging = Hedging(0.1)
        for _ in range(30):
            hedging.begins("Analyze")
            hedging.answered("Analyze", 0.01)
    async with first_answer(hedging, pair, pair.replicas[0], "Analyze", ask, discarded.append) as answer:
        return answer


def script(log: list[str], **behaviour: Any) -> Ask:
    """a, b: seconds until the replica answers, or the status with which it fails at once."""

    async def ask(replica: Replica) -> str:
        does = behaviour[replica.target]
        log.append(f"{replica.target} asked")
        if isinstance(does, grpc.StatusCode):
            await asyncio.sleep(0.02)
            raise failure(does)
        try:
            await asyncio.sleep(does)
        except asyncio.CancelledError:
            log.append(f"{replica.target} cancelled")
            raise
        return replica.target

    return ask


async def test_a_call_in_time_is_sent_once() -> None:
    log, discarded = list[str](), list[str]()
    assert await hedged(Pair(), script(log, a=0, b=0), discarded) == "a"
    assert log == ["a asked"]
    assert discarded == ["a"]


async def test_a_late_call_is_answered_by_the_other_replica_and_cancelled() -> None:
    log, discarded, pair = list[str](), list[str](), Pair()
    async with asyncio.timeout(5):
        assert await hedged(pair, script(log, a=60, b=0), discarded) == "b"
    assert log == ["a asked", "b asked", "a cancelled"]
    assert discarded == ["b"]
    assert [replica.calls for replica in pair.replicas] == [0, 0]


async def test_the_first_replica_may_still_win() -> None:
    log = list[str]()
    assert await hedged(Pair(), script(log, a=0.1, b=60), []) == "a"
    assert log == ["a asked", "b asked", "b cancelled"]


async def test_a_replica_that_dies_while_the_other_one_works_is_suspected_and_not_heard() -> None:
    pair = Pair()
    assert await hedged(pair, script([], a=grpc.StatusCode.UNAVAILABLE, b=0.1), []) == "b"
    assert pair.suspected == ["a"]


async def test_an_error_of_the_request_is_not_waited_out() -> None:
    log = list[str]()
    async with asyncio.timeout(5):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await hedged(Pair(), script(log, a=grpc.StatusCode.INVALID_ARGUMENT, b=60), [])
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "b cancelled" in log


async def test_if_both_fail_the_first_error_counts() -> None:
    pair = Pair()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await hedged(pair, script([], a=grpc.StatusCode.RESOURCE_EXHAUSTED, b=grpc.StatusCode.UNAVAILABLE), [])
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert pair.suspected == ["b"]


async def test_a_caller_that_hangs_up_ends_both_calls() -> None:
    log = list[str]()
    asking = asyncio.create_task(hedged(Pair(), script(log, a=60, b=60), []))
    while len(log) < 2:
        await asyncio.sleep(0.005)
    asking.cancel()
    await asyncio.wait([asking])
    assert sorted(log[2:]) == ["a cancelled", "b cancelled"]
