"""The place of a stream that may have nothing to speak yet: another request takes it when it needs
one.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

from cosyserve.errors import Overloaded

_RETRY_SECONDS = 1.0


class PreemptiblePlace:
    """The place of a stream whose text arrives over time. It is idle until the first text, and when
    neither text came nor audio was sent for `idle_seconds`; never while the caller still has to
    read audio. now: a monotonic clock, in seconds.
    """

    def __init__(self, idle_seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._idle_seconds = idle_seconds
        self._now = now
        self._since = now()
        self._written = False
        self._sending = 0
        self._reclaimed = asyncio.Event()

    @property
    def reclaimed(self) -> bool:
        """Whether another request has taken the place."""
        return self._reclaimed.is_set()

    @property
    def idle(self) -> bool:
        """Whether another request may take the place."""
        return not self._sending and (not self._written or self._now() - self._since > self._idle_seconds)

    @property
    def since(self) -> float:
        """Time of the last use, on the clock `now`."""
        return self._since

    def used(self) -> None:
        """Text that can be spoken came, or audio was sent."""
        self._written = True
        self._since = self._now()

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """The place is in use while the block runs and for `idle_seconds` after it: audio is being
        sent, however slowly the caller reads it.
        """
        self._sending += 1
        self.used()
        try:
            yield
        finally:
            self._sending -= 1
            self.used()

    def reclaim(self) -> None:
        """Give the place to another request; `until_reclaimed` then raises."""
        self._reclaimed.set()

    async def until_reclaimed(self) -> None:
        """Raises Overloaded when the place is taken back; does not return before."""
        await self._reclaimed.wait()
        waited = self._now() - self._since
        what = "no text and no audio" if self._written else "no text"
        raise Overloaded(
            f"another request needed the place of this stream, on which there was {what} for {waited:.1f} s; "
            "open it again when there is something to speak",
            retry_after=_RETRY_SECONDS,
        )
