"""Into how many parts the limits of a key are divided: one for each orchestrator."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)
FRESH_SECONDS = 10.0
_FIRST_SECONDS = 2.0


class LimitParts:
    """count: where there is no name. name: host whose addresses are those of all orchestrators,
    such as a headless Service of Kubernetes; empty: `count` is used. resolve: the number of
    addresses of a host; now: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        count: int,
        name: str = "",
        resolve: "Callable[[str], Awaitable[int]] | None" = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.count = count
        self._name, self._now, self._resolve = name, now, resolve or _addresses
        self._asked: float | None = None
        self._asking: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Ask for the addresses again if that was ten seconds ago. Only the first call waits, at
        most 2 s; without an answer the count stays.
        """
        if not self._name or (self._asked is not None and self._now() - self._asked < FRESH_SECONDS):
            return
        first, self._asked = self._asked is None, self._now()
        self._asking = asyncio.create_task(self._ask())
        if first:
            await asyncio.wait((self._asking,), timeout=_FIRST_SECONDS)

    async def _ask(self) -> None:
        try:
            found = await self._resolve(self._name)
        except OSError as error:
            log.warning("the addresses of %s are not known: %s", self._name, error.strerror or error)
            return
        if found and found != self.count:
            log.info("limits of keys are divided among %d orchestrators", found)
            self.count = found


async def _addresses(name: str) -> int:
    found = await asyncio.get_running_loop().getaddrinfo(name, None)
    return len({address[0] for *_, address in found})
