"""Hedged calls: a call of a pure function that takes longer than nearly all did lately is sent to a
second replica as well; the first answer is taken, and the other call is cancelled.

A replica that pauses for a moment, on a host that is busy or with a page that has to be read, then
costs a caller little. At most a small share of the calls is hedged, so a stage that is slow as a
whole gets hardly more work.

Source: Dean and Barroso, "The Tail at Scale", 2013.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import grpc

from cosyserve.errors import CosyserveError, Unavailable
from cosyserve.metrics import names
from cosyserve.metrics.instruments import counter
from cosyserve.rpc.calls import as_error
from cosyserve.rpc.load.breaker import Verdict, verdict_of
from cosyserve.rpc.replicas import Replica, ReplicaSet
from cosyserve.tasks import cancel_all

_REMEMBERED = 128
_LEAST_KNOWN = 20
"""Times of a method below which it is not hedged."""
_PERCENTILE = 0.95
_LEAST_SECONDS = 0.005
"""A shorter wait says nothing about the replica."""
_MOST_SAVED = 10.0
"""Hedged calls that may follow each other when few were needed before."""
_MAY_PASS = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
"""Of a call that failed while another one runs: that one may succeed."""
T = TypeVar("T")


class LostElsewhere(Unavailable):
    """The call was lost at `replica`, to which it was hedged, and not where it was begun."""

    def __init__(self, lost: CosyserveError, replica: Replica) -> None:
        super().__init__(lost.message, retry_after=lost.retry_after)
        self.replica = replica


class Hedging:
    """When calls of one stage are hedged, for one event loop. share: of the calls that may be; 0:
    none.
    """

    def __init__(self, share: float = 0.0) -> None:
        self._share, self._saved = share, 0.0
        self._times: dict[str, deque[float]] = {}

    def begins(self, method: str) -> float | None:
        """A call begins. Returns the seconds after which it may be hedged; None: never."""
        self._saved = min(self._saved + self._share, _MOST_SAVED)
        times = self._times.get(method, ())
        if not self._share or len(times) < _LEAST_KNOWN:
            return None
        return max(sorted(times)[int(_PERCENTILE * len(times))], _LEAST_SECONDS)

    def answered(self, method: str, seconds: float) -> None:
        """The first answer of a call came after so many seconds."""
        self._times.setdefault(method, deque(maxlen=_REMEMBERED)).append(seconds)

    def spend(self) -> bool:
        """Whether one more call may be hedged now."""
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True


@contextlib.asynccontextmanager
async def first_answer(
    hedging: Hedging,
    replicas: ReplicaSet,
    replica: Replica,
    method: str,
    ask: Callable[[Replica], Awaitable[T]],
    discard: Callable[[T], object] = lambda _: None,
) -> AsyncIterator[T]:
    """What `ask` gives for `replica`, or for another one that was asked later and answers earlier.

    ask: a pure function of the replica; when it is cancelled it ends its call. discard: called with
    what it gave, at the end of the block, and at once for an answer that comes too late. Raises
    what `ask` raises for `replica`, and LostElsewhere if the block loses the other one.
    """
    begun, delay = time.monotonic(), hedging.begins(method)
    async with contextlib.AsyncExitStack() as held:
        first: asyncio.Future[T] = asyncio.ensure_future(ask(replica))
        calls: list[asyncio.Future[T]] = [first]
        winner: asyncio.Future[T] | None = None
        try:
            await asyncio.wait(calls, timeout=delay)
            other = None if first.done() else replicas.pick({replica})
            if other is not None and hedging.spend():
                held.enter_context(replicas.busy(other))
                calls.append(asyncio.ensure_future(_judged(ask, other, replicas)))
            winner = await _first_of(calls)
            answer = winner.result()
        finally:
            await _end([call for call in calls if call is not winner], discard)
        hedging.answered(method, time.monotonic() - begun)
        if len(calls) > 1:
            winning = "first" if winner is first else "second"
            counter(names.HEDGES).add(stage=replicas.stage, call=method, winner=winning)
            if winner is not first:
                _note_failure(first, replicas, replica)
        try:
            yield answer
        except grpc.aio.AioRpcError as error:
            lost = as_error(error, replicas.stage)
            if winner is first or other is None or not isinstance(lost, Unavailable):
                raise
            raise LostElsewhere(lost, other) from error
        finally:
            discard(answer)


async def _first_of(calls: "list[asyncio.Future[T]]") -> "asyncio.Future[T]":
    """The first one with an answer, or with an error that the others would have as well; if all of
    them failed, the one that was begun first.
    """
    waiting = set(calls)
    while waiting:
        if not (done := {call for call in waiting if call.done()}):
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        waiting -= done
        for call in done:
            error = call.exception()
            if not (isinstance(error, grpc.aio.AioRpcError) and error.code() in _MAY_PASS):
                return call
    return calls[0]


async def _end(calls: "list[asyncio.Future[T]]", discard: Callable[[T], object]) -> None:
    """Cancel calls that are not needed any more; an answer that came all the same is discarded."""
    await cancel_all(calls)
    for call in calls:
        if not call.cancelled() and call.exception() is None:
            discard(call.result())


async def _judged(ask: Callable[[Replica], Awaitable[T]], replica: Replica, replicas: ReplicaSet) -> T:
    """The second call; its replica is judged by it as by any call."""
    attempt, verdict = replica.breaker.begins(), Verdict.NOTHING
    try:
        answer = await ask(replica)
        verdict = Verdict.SUCCESS
    except grpc.aio.AioRpcError as error:
        ours = as_error(error, replicas.stage)
        verdict = verdict_of(ours)
        if isinstance(ours, Unavailable):
            replicas.suspect(replica)
        raise
    finally:
        replica.breaker.ends(attempt, verdict)
    return answer


def _note_failure(call: "asyncio.Future[T]", replicas: ReplicaSet, replica: Replica) -> None:
    """Its caller sees the answer of the second call, and so does not hear that it failed."""
    error = None if call.cancelled() else call.exception()
    if isinstance(error, grpc.aio.AioRpcError) and isinstance(as_error(error, replicas.stage), Unavailable):
        replicas.suspect(replica)
