"""A place that is held by a caller who may have nothing to speak yet: another request gets it when
it needs it.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

from cosyserve.errors import Overloaded

_RETRY_SECONDS = 1.0


class PreemptiblePlace:
    """Of a stream whose text arrives over time. Until the first text it is idle; after that, when
    neither text came nor audio left for `idle_seconds`; never while audio waits for the caller to
    take it. now: seconds that only grow."""

    def __init__(self, idle_seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._idle_seconds = idle_seconds
        self._now = now
        self._since = now()
        self._written = False
        self._sending = 0
        self._reclaimed = asyncio.Event()

    @property
    def reclaimed(self) -> bool:
        """Whether another request has the place now."""
        return self._reclaimed.is_set()

    @property
    def idle(self) -> bool:
        """Whether the place would not be missed."""
        return not self._sending and (not self._written or self._now() - self._since > self._idle_seconds)

    @property
    def since(self) -> float:
        """When it was last used, on the clock."""
        return self._since

    def used(self) -> None:
        """Text came that can be spoken, or audio left."""
        self._written = True
        self._since = self._now()

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """The place is in use while the block runs, and until `idle_seconds` after it: audio is
        being sent, however slowly it is taken.
        """
        self._sending += 1
        self.used()
        try:
            yield
        finally:
            self._sending -= 1
            self.used()

    def reclaim(self) -> None:
        """Give it to another request; who waits in `until_reclaimed` is told."""
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
