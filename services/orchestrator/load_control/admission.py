"""Admission control: a limit of requests in flight with a retry hint; the place of a
stream that may have nothing to speak yet, which another request takes when it needs one; and the
deadline of an admitted request.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum

from cosyserve.errors import DeadlineExceeded, Overloaded
from cosyserve.rpc.deadlines import deadline
from services.orchestrator.load_control.fair_shares import NO_KEY, FairShares, Holder, Share
from services.orchestrator.load_control.wait_estimate import ANYTHING, ActiveRequest, RequestKind, WaitEstimator
from services.orchestrator.load_control.waiting_requests import WaitingRequests

_RETRY_SECONDS = 1.0


class Use(Enum):
    """What the place of a stream is used for: text that can be spoken came, the sending of audio
    began, or it ended.
    """

    TEXT = "text"
    SENDING = "sending"
    SENT = "sent"


class PreemptiblePlace:
    """The place of a stream whose text arrives over time. It is idle until the first text, and when
    neither text came nor audio was sent for `idle_seconds`; never while the caller still has to
    read audio. now: a monotonic clock, in seconds.
    """

    def __init__(self, idle_seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._idle_seconds = idle_seconds
        self._now = now
        self.since = now()
        """Time of the last use, on the clock `now`."""
        self._written = False
        self._sending = 0
        self.reclaimed = asyncio.Event()
        """Set when another request takes the place; `until_reclaimed` then raises."""
        self.follow: Callable[[Use], None] = lambda use: None
        """Called with each change of its use, where another process counts it."""

    @property
    def idle(self) -> bool:
        """Whether another request may take the place."""
        return not self._sending and (not self._written or self._now() - self.since > self._idle_seconds)

    def used(self) -> None:
        """Text that can be spoken came, or audio was sent."""
        self.take(Use.TEXT)

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """The place is in use while the block runs and for `idle_seconds` after it: audio is being
        sent, however slowly the caller reads it.
        """
        self.take(Use.SENDING)
        try:
            yield
        finally:
            self.take(Use.SENT)

    def take(self, use: Use) -> None:
        """The place is used so from now on."""
        self._sending += {Use.SENDING: 1, Use.SENT: -1}.get(use, 0)
        self._written = True
        self.since = self._now()
        self.follow(use)

    async def until_reclaimed(self) -> None:
        """Raises Overloaded when the place is taken back; does not return before."""
        await self.reclaimed.wait()
        waited = self._now() - self.since
        what = "no text and no audio" if self._written else "no text"
        raise Overloaded(
            f"another request needed the place of this stream, on which there was {what} for {waited:.1f} s; "
            "open it again when there is something to speak",
            retry_after=_RETRY_SECONDS,
        )


class Admission:
    """Counts requests in flight. Without keys, or with one, there is no queue: a talking agent is
    better served by another replica now than by this one later. Several keys share the places
    (`fair_shares`), and then a request waits a moment for one.

    changed: called when a request begins, ends or is refused. now: a monotonic clock, in seconds.
    wait_seconds: longest wait for a place. kept_seconds: as in `FairShares`. named: as the metrics
    name this limit.
    """

    def __init__(
        self,
        limit: int,
        what: str = "streams",
        *,
        changed: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
        wait_seconds: float = 0.0,
        kept_seconds: float = 0.0,
        named: str = "streams",
    ) -> None:
        if limit < 1:
            raise ValueError(f"at least one of the {what} must be admitted, got {limit}")
        self._what, self._named = what, named
        self._shares = FairShares(limit, kept_seconds, now)
        self._queue = WaitingRequests(self._shares)
        self._wait_seconds = wait_seconds
        self.changed = changed
        self.limit_changed: Callable[[], None] = lambda: None
        self._now = now
        self._departures = WaitEstimator()
        self._preemptible: dict[PreemptiblePlace, Holder] = {}

    @property
    def limit(self) -> int:
        """May be changed at any time; running requests are not affected."""
        return self._shares.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._shares.limit = limit
        self._queue.serve()
        self.limit_changed()

    @property
    def active(self) -> int:
        """Requests that hold a place."""
        return self._shares.active

    @property
    def waiting(self) -> int:
        """Requests that wait for one."""
        return len(self._queue)

    @property
    def longest_wait(self) -> float:
        """Seconds for which the first of them has waited; 0: none waits."""
        return self._queue.oldest

    @contextlib.contextmanager
    def admit(
        self, kind: RequestKind = ANYTHING, size: float = 1.0, preemptible: PreemptiblePlace | None = None
    ) -> Iterator[ActiveRequest]:
        """Hold a place while the block runs. kind, size: determine how long the request is expected
        to take. preemptible: the place, if another request may take it while it is idle. Raises
        Overloaded with a retry hint if no place is free.
        """
        holder = self._shares.holder(NO_KEY)
        self._reclaim()
        if self.active >= self.limit:
            raise self._refusal()
        self._shares.take(holder)
        with self._held(holder, kind, size, preemptible) as request:
            yield request

    @contextlib.asynccontextmanager
    async def admit_in_turn(
        self,
        share: Share,
        kind: RequestKind = ANYTHING,
        size: float = 1.0,
        preemptible: PreemptiblePlace | None = None,
    ) -> AsyncIterator[ActiveRequest]:
        """As `admit`, for a request of this key: it may wait for a place while other keys hold them
        all, at most `wait_seconds`.
        """
        holder = self._shares.holder(share)
        self._reclaim()
        self._queue.serve()
        if self._shares.has_room(holder):
            self._shares.take(holder)
        elif not self._shares.contended(holder) or not await self._queue.wait(holder, self._wait_seconds):
            raise self._refusal()
        with self._held(holder, kind, size, preemptible) as request:
            yield request

    @contextlib.contextmanager
    def _held(
        self, holder: Holder, kind: RequestKind, size: float, preemptible: PreemptiblePlace | None
    ) -> Iterator[ActiveRequest]:
        """The place that was taken for `holder`, until the end of the block."""
        if preemptible is not None:
            self._preemptible[preemptible] = holder
        request = self._departures.begins(kind, size, self._now())
        self.changed()
        completed = False
        try:
            yield request
            completed = not request.cut_short
        finally:
            if preemptible is None or not preemptible.reclaimed.is_set():
                self._shares.leave(holder)
            self._preemptible.pop(preemptible, None)  # type: ignore[arg-type]
            self._departures.ends(request, self._now(), completed=completed)
            self._queue.serve()
            self.changed()

    def _refusal(self) -> Overloaded:
        retry = self._departures.next_place(self.limit, self._now())
        self.changed()
        kept = "" if self.active >= self.limit else ", the others are kept for other keys"
        return Overloaded(
            f"{self.active} of {self.limit} {self._what} are in use{kept}; try again in {retry:.1f} s",
            retry_after=retry,
            limit=self._named,
        )

    def _reclaim(self) -> None:
        """Take back as many idle places, longest idle first, as one request needs; none if that
        would not be enough.
        """
        missing = self.active - self.limit + 1
        idle = sorted((place for place in self._preemptible if place.idle), key=lambda place: place.since)
        if not 0 < missing <= len(idle):
            return
        for place in idle[:missing]:
            place.reclaimed.set()
            self._shares.leave(self._preemptible.pop(place))


@contextlib.asynccontextmanager
async def request_deadline(longest_seconds: float, callers_seconds: float | None) -> AsyncIterator[None]:
    """End the block at the caller's deadline or after `longest_seconds`, whichever comes first.
    Raises DeadlineExceeded then.
    """
    seconds = longest_seconds if callers_seconds is None else min(longest_seconds, callers_seconds)
    try:
        with deadline(seconds):
            async with asyncio.timeout(seconds):
                yield
    except TimeoutError as error:
        raise DeadlineExceeded(f"the request took longer than {seconds:.1f} s") from error
