"""Retries a call on another replica when a stage fails in mid-request, with everything its
predecessor received.

Every stage is a pure function of its request, so the next replica computes the same numbers;
nothing that the caller has heard is repeated or changed.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import grpc
from cosyserve.rpc.calls import as_error

from cosyserve import errors
from cosyserve.rpc.replicas import Replica, ReplicaSet

log = logging.getLogger(__name__)
_RETRY_SECONDS = 0.5
Call = TypeVar("Call", bound=grpc.aio.Call)


@dataclass(frozen=True)
class RetryPolicy:
    """Timeout and retry policy for calls to a stage."""

    stall_seconds: float
    """Seconds without a response after which a stage that owes one is considered dead."""
    recovery_seconds: float
    """Seconds that a running request waits for a replica to come up."""
    attempts: int
    """Most calls to one stage for one piece of work."""


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


async def call_with_failover(
    replicas: ReplicaSet,
    policy: RetryPolicy,
    attempt: Callable[[Replica, StallTimer], Awaitable[None]],
    *,
    under_way: bool = False,
) -> int:
    """Run `attempt` on one replica after another until it returns; returns the number of failures
    on the way.

    A replica that is gone (UNAVAILABLE) is not used by any request until its health is known again;
    one that stalls, is full or has another engine is skipped by this request. under_way: the caller
    has already heard a part, so wait for a replica if none is serving, and for the retry hint if
    all are full, instead of failing. Raises Unavailable if no replica is serving, else the last
    failure when no replica is left to try.
    """
    declined: set[Replica] = set()
    failures = 0
    gone = False
    last: errors.CosyserveError = errors.Unavailable(f"no replica of {replicas.stage} is serving", retry_after=1.0)
    full_until = asyncio.get_running_loop().time() + (policy.recovery_seconds if under_way else 0.0)
    while True:
        awaited = gone or (under_way and not isinstance(last, errors.Overloaded))
        replica = await replicas.wait(policy.recovery_seconds, declined) if awaited else replicas.pick(declined)
        if replica is None:
            remaining = full_until - asyncio.get_running_loop().time()
            if not isinstance(last, errors.Overloaded) or remaining <= 0:
                raise last
            await asyncio.sleep(min(last.retry_after or _RETRY_SECONDS, remaining))
            declined.clear()
            continue
        try:
            with replicas.busy(replica), _plain_errors(replicas.stage):
                async with _watched(replicas.stage, policy.stall_seconds) as timer:
                    await attempt(replica, timer)
        except (errors.Overloaded, errors.FailedPrecondition) as error:
            declined.add(replica)
            last = error
        except (errors.Unavailable, errors.DeadlineExceeded) as error:
            if isinstance(error, errors.Unavailable):
                gone = True
                replicas.suspect(replica)
            else:
                declined.add(replica)
            failures += 1
            last = error
            log.warning(
                "%s at %s: %s; attempt %d of %d",
                replicas.stage,
                replica.target,
                error.message,
                failures,
                policy.attempts,
            )
            if failures >= policy.attempts:
                raise
        except errors.InternalFault as error:
            # The message may quote the text of the request.
            log.warning("%s at %s failed with %s", replicas.stage, replica.target, type(error).__name__)
            raise
        else:
            return failures


@contextlib.contextmanager
def cancelling(call: Call) -> Iterator[Call]:
    """Cancel `call` when the block is left, however it is left: only cancellation makes the stage
    stop its work.
    """
    try:
        yield call
    finally:
        call.cancel()


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
