"""Keeps a request from the engines after two of them were lost while they computed it.

When an engine process is lost, every piece of work that it had is suspected, because it is not
known which one it was. A suspect that completes on another engine is innocent. A suspect that loses
a second engine, and is the only one there that had lost one before, is to blame: it is refused for
a while. If several suspects lose the second engine together, none is blamed; they are tried one at
a time from then on, until one of them completes or loses an engine by itself.

Work is known by a hash of its content (`work`), so that the same text sent again is known again.
Texts are not kept.
"""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from cosyserve.errors import PeerLost, Quarantined, SpeechFault, Unavailable
from cosyserve.metrics import names
from cosyserve.metrics.instruments import counter
from services.orchestrator.faults.work import Work

log = logging.getLogger(__name__)
MOST_KEPT = 1024
"""Suspects, and refused pieces of work, that are remembered; the oldest are forgotten first."""
MOST_TOGETHER = 8
"""If more suspects lose their second engine together, the machines are at fault, not a request.
"""


@dataclass
class _Suspect:
    """engines: how many were lost with it. since: when the last one was. alone: whether it has to
    be tried without other suspects.
    """

    engines: int
    since: float
    alone: bool = False


@dataclass(eq=False)
class _Run:
    work: Work
    counted: bool = False
    """Whether the loss of its replica was counted for it."""


class Quarantine:
    """For one event loop. engines: lost engines after which a piece of work is refused; 0: never.
    seconds: how long suspects and refusals are remembered. now: a monotonic clock, in seconds.
    """

    def __init__(self, engines: int = 2, seconds: float = 600.0, now: Callable[[], float] = time.monotonic) -> None:
        self._engines, self._seconds, self._now = engines, seconds, now
        self._suspects: OrderedDict[str, _Suspect] = OrderedDict()
        self._refused: OrderedDict[str, float] = OrderedDict()
        """When each was put into quarantine."""
        self._running: dict[Hashable, list[_Run]] = {}
        """By replica."""
        self._turn = asyncio.Lock()
        """Held by the suspect that has to be tried alone."""

    def require_allowed(self, *keys: str) -> None:
        """Raise Quarantined, with a retry hint, if one of them is refused."""
        for key in keys:
            placed = self._refused.get(key) if key else None
            if placed is None:
                continue
            left = placed + self._seconds - self._now()
            if left > 0:
                counter(names.QUARANTINED).add(event="refused")
                raise Quarantined(
                    f"{self._engines} engines were lost while they spoke this text, so it is not spoken for another "
                    f"{left:.0f} s; change the text or the voice, and report it",
                    retry_after=left,
                )
            del self._refused[key]

    @contextlib.asynccontextmanager
    async def in_turn(self, work: Work | None, seconds: float) -> AsyncIterator[None]:
        """The block may compute `work`: at once or, for a suspect that has to be alone, when no
        other one is computed. Raises Quarantined if it is refused, Unavailable if its turn takes
        longer than `seconds` to come.
        """
        if work is not None:
            self.require_allowed(work.key)
        if work is None or (suspect := self._suspect(work.key)) is None or not suspect.alone:
            yield
            return
        try:
            async with asyncio.timeout(seconds):
                await self._turn.acquire()
        except TimeoutError:
            raise Unavailable(
                "engines were lost with this sentence, and others with which they were lost are tried first",
                retry_after=seconds,
            ) from None
        try:
            self.require_allowed(work.key)
            yield
        finally:
            self._turn.release()

    def crowded(self, work: Work) -> Collection[Any]:
        """The replicas that a suspect had better not be given to, because they have another one."""
        if self._suspect(work.key) is None:
            return ()
        return [
            replica
            for replica, runs in self._running.items()
            if any(run.work.key != work.key and self._suspect(run.work.key) is not None for run in runs)
        ]

    @contextlib.contextmanager
    def computing(self, replica: Hashable, work: Work) -> Iterator[None]:
        """`replica` computes `work` while the block runs. A block that ends without an error, or
        with that of a guard, shows that the work is harmless; one that ends with PeerLost, that the
        process was lost.
        """
        run = _Run(work)
        self._running.setdefault(replica, []).append(run)
        try:
            yield
            self._suspects.pop(work.key, None)
        except SpeechFault:
            self._suspects.pop(work.key, None)
            raise
        except PeerLost:
            self._lost(replica)
            raise
        finally:
            runs = self._running[replica]
            runs.remove(run)
            if not runs:
                del self._running[replica]

    def _lost(self, replica: Hashable) -> None:
        runs = [run for run in self._running.get(replica, ()) if not run.counted]
        for run in runs:
            run.counted = True
        works = {run.work.key: run.work for run in runs}
        if not works or not self._engines:
            return
        before = {key: suspect for key in works if (suspect := self._suspect(key)) is not None}
        last = [key for key, suspect in before.items() if suspect.engines >= self._engines - 1]
        if self._engines == 1 and len(works) == 1:
            last = list(works)
        if len(last) == 1:
            self._place(works[last[0]])
        for key in works:
            if key not in self._refused:
                self._strike(key, alone=1 < len(last) <= MOST_TOGETHER and key in last)

    def _strike(self, key: str, *, alone: bool) -> None:
        suspect = self._suspects.pop(key, None) or _Suspect(0, 0.0)
        suspect.engines, suspect.since = min(suspect.engines + 1, max(self._engines - 1, 1)), self._now()
        suspect.alone = suspect.alone or alone
        self._suspects[key] = suspect
        while len(self._suspects) > MOST_KEPT:
            self._suspects.popitem(last=False)

    def _place(self, work: Work) -> None:
        self._suspects.pop(work.key, None)
        for key in filter(None, (work.key, work.request)):
            self._refused[key] = self._now()
            while len(self._refused) > MOST_KEPT:
                self._refused.popitem(last=False)
        counter(names.QUARANTINED).add(event="placed")
        log.error(
            "%d engines were lost while they computed %s; it is refused for %.0f s",
            self._engines,
            work.key[:16],
            self._seconds,
        )

    def _suspect(self, key: str) -> _Suspect | None:
        suspect = self._suspects.get(key)
        if suspect is not None and self._now() - suspect.since > self._seconds:
            del self._suspects[key]
            return None
        return suspect
