"""Retries a call on another replica when a stage fails in mid-request, with everything its
predecessor received, if it has the same engine.

Every stage is a pure function of its request, so the next replica computes the same numbers;
nothing that the caller has heard is repeated or changed.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc

from cosyserve import errors
from cosyserve.metrics import names
from cosyserve.metrics.instruments import counter
from cosyserve.rpc.calls import ENDED_BETWEEN, as_error
from cosyserve.rpc.deadlines import require_time
from cosyserve.rpc.load.breaker import Verdict, verdict_of
from cosyserve.rpc.replicas import Replica, ReplicaSet
from services.orchestrator.faults.hedging import LostElsewhere
from services.orchestrator.faults.quarantine import Quarantine
from services.orchestrator.faults.retry_budget import RetryBudget
from services.orchestrator.faults.work import Work

log = logging.getLogger(__name__)
_RETRY_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 1.0
"""Of a running request between two tries of replicas that are full."""
_FAILOVERS = counter(names.FAILOVERS)
_CONNECTED = grpc.ChannelConnectivity.READY
Call = TypeVar("Call", bound=grpc.aio.Call)
Item = TypeVar("Item")


@dataclass(frozen=True)
class RetryPolicy:
    """Timeout and retry policy for calls to a stage."""

    stall_seconds: float
    """Seconds without a response after which a stage that owes one is considered dead."""
    recovery_seconds: float
    """Seconds that a running request waits for a replica to come up."""
    attempts: int
    """Most calls to one stage for one piece of work."""
    budget: RetryBudget = field(default_factory=lambda: RetryBudget("stage"))
    """The retries of the stage, all requests together."""
    quarantine: Quarantine = field(default_factory=Quarantine)
    """The work with which engines were lost, of all stages."""


class StallTimer:
    """Time limit for the next response of a stage. It is suspended while the stage waits for
    another party.
    """

    def __init__(self, limit: asyncio.Timeout, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._pauses = 0
        self.beat()

    def beat(self) -> None:
        """The stage responded: restart the time limit."""
        # A limit that has just expired cannot be moved; the task is about to be cancelled by it.
        if not self._limit.expired():
            self._limit.reschedule(None if self._pauses else asyncio.get_running_loop().time() + self._seconds)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The stage owes no response while the block runs."""
        self._pauses += 1
        self.beat()
        try:
            yield
        finally:
            self._pauses -= 1
            self.beat()

    async def paused_between(self, items: AsyncIterator[Item]) -> AsyncGenerator[Item]:
        """Pass `items` on; the stage owes no response while the next one is awaited."""
        while True:
            with self.paused():
                item = await anext(items, None)
            if item is None:
                return
            yield item


async def call_with_failover(
    replicas: ReplicaSet,
    policy: RetryPolicy,
    attempt: Callable[[Replica, StallTimer], Awaitable[None]],
    *,
    under_way: bool = False,
    work: Work | None = None,
) -> int:
    """Run `attempt` on one replica after another until it returns; returns the number of failures
    on the way.

    A replica that is gone (UNAVAILABLE) is not used by any request until its health is known again;
    one that stalls, is full or has another engine is skipped by this request. under_way: the caller
    has already heard a part, so wait for a replica if none is serving, and for the retry hint, at
    most a second, if all are full, instead of failing. work: what is computed, if engines may be
    lost with it. Raises Unavailable if no replica is serving, the stage has no retries left or
    other suspects are tried before `work`, Quarantined if `work` is refused, DeadlineExceeded if
    the request has no time left, else the last failure when no replica is left to try.
    """
    declined: set[Replica] = set()
    failures = 0
    gone = False
    last: errors.CosyserveError = _none_serving(replicas)
    full_until = asyncio.get_running_loop().time() + (policy.recovery_seconds if under_way else 0.0)
    while True:
        async with policy.quarantine.in_turn(work, policy.recovery_seconds):
            awaited = gone or (under_way and not isinstance(last, errors.Overloaded))
            avoid = declined.union(policy.quarantine.crowded(work)) if work and failures else declined
            replica = replicas.pick(avoid) or (
                await replicas.wait(policy.recovery_seconds, declined) if awaited else replicas.pick(declined)
            )
            if replica is None:
                remaining = full_until - asyncio.get_running_loop().time()
                if not isinstance(last, errors.Overloaded) or remaining <= 0:
                    raise last
                # The hint is for callers who hear nothing yet; here a listener is waiting.
                await asyncio.sleep(min(last.retry_after or _RETRY_SECONDS, _LONGEST_PAUSE_SECONDS, remaining))
                declined.clear()
                continue
            try:
                await _try(replicas, replica, policy, attempt, work)
            except errors.CallersDeadline:
                raise
            except (errors.Overloaded, errors.FailedPrecondition) as error:
                declined.add(replica)
                last = error
            except (errors.Unavailable, errors.DeadlineExceeded) as error:
                lost = error.replica if isinstance(error, LostElsewhere) else replica
                policy.budget.lost(lost, lost.calls + 1)
                if isinstance(error, errors.Unavailable):
                    gone = True
                    replicas.suspect(lost)
                else:
                    declined.add(replica)
                failures += 1
                last = error
                log.warning(
                    "%s at %s: %s; attempt %d of %d",
                    replicas.stage,
                    lost.target,
                    error.message,
                    failures,
                    policy.attempts,
                )
                if failures >= policy.attempts:
                    raise
                policy.budget.spend(error.message)
            except errors.InternalFault as error:
                # The message may quote the text of the request.
                log.warning("%s at %s failed with %s", replicas.stage, replica.target, type(error).__name__)
                raise
            else:
                policy.budget.succeeded()
                if failures:
                    _FAILOVERS.add(failures, stage=replicas.stage)
                return failures


async def _try(
    replicas: ReplicaSet,
    replica: Replica,
    policy: RetryPolicy,
    attempt: Callable[[Replica, StallTimer], Awaitable[None]],
    work: Work | None,
) -> None:
    """One attempt on one replica; its breaker and the quarantine learn how it ended. Raises
    CallersDeadline if there is no time left for it, or none was left when it failed.
    """
    with policy.quarantine.computing(replica, work) if work else contextlib.nullcontext():
        require_time()
        begun, verdict = replica.breaker.begins(), Verdict.NOTHING
        try:
            with replicas.busy(replica), _plain_errors(replicas.stage):
                async with _watched(replicas.stage, policy.stall_seconds) as timer:
                    await attempt(replica, timer)
            verdict = Verdict.SUCCESS
        except errors.CosyserveError as error:
            require_time()
            verdict = Verdict.NOTHING if isinstance(error, LostElsewhere) else verdict_of(error)
            if error.message.endswith(ENDED_BETWEEN) and replica.channel.get_state() is not _CONNECTED:
                raise errors.PeerLost(error.message) from error
            raise
        finally:
            replica.breaker.ends(begun, verdict)


def _none_serving(replicas: ReplicaSet) -> errors.Unavailable:
    """The error of a call for which there is no replica."""
    seconds = replicas.seconds_to_probe
    if seconds is None:
        return errors.Unavailable(f"no replica of {replicas.stage} is serving", retry_after=1.0)
    return errors.Unavailable(
        f"every replica of {replicas.stage} fails; send the request again in {max(seconds, 1.0):.0f} s",
        retry_after=max(seconds, 1.0),
    )


@contextlib.contextmanager
def cancelling(call: Call) -> Iterator[Call]:
    """Cancel `call` when the block is left, however it is left: only cancellation makes the stage
    stop its work.
    """
    try:
        yield call
    finally:
        call.cancel()


async def pour(call: grpc.aio.StreamStreamCall[Any, Any], setup: object, messages: AsyncGenerator[object]) -> None:
    """Write `setup` and, once it is accepted, `messages` to their end; then end the text of the
    call.

    A write on a dead call is ignored: the reader gets its status. That is also why this waits for
    the initial metadata, which confirm the setup: grpc.aio replaces the status of a refusal by its
    own if a write crosses it.
    """
    async with contextlib.aclosing(messages):
        try:
            await call.write(setup)
            await call.initial_metadata()
            async for message in messages:
                await call.write(message)
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return


@contextlib.asynccontextmanager
async def _watched(stage: str, seconds: float) -> AsyncIterator[StallTimer]:
    try:
        async with asyncio.timeout(seconds) as limit:
            yield StallTimer(limit, seconds)
    except TimeoutError as error:
        raise errors.DeadlineExceeded(f"{stage} gave no answer for {seconds:g} s") from error


@contextlib.contextmanager
def _plain_errors(stage: str) -> Iterator[None]:
    """Translate failed calls to our exceptions, out of a TaskGroup too. Of several errors at once
    the caller's own (playing failed) has priority.
    """
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise as_error(error, stage) from error
    except BaseExceptionGroup as group:
        calls, rest = group.split(grpc.aio.AioRpcError)
        leaf: BaseException = rest or calls or group
        while isinstance(leaf, BaseExceptionGroup):
            leaf = leaf.exceptions[0]
        raise (as_error(leaf, stage) if isinstance(leaf, grpc.aio.AioRpcError) else leaf) from group
