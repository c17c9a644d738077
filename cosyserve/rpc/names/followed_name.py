"""Follows the addresses of a name while it is in use."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from cosyserve.errors import SettingsError
from cosyserve.rpc.names.lookup import LookupFailed, NameLookup
from cosyserve.rpc.names.target import NamedTarget

log = logging.getLogger(__name__)
LOOK_UP_SECONDS: Final = 1.0
"""Between two look-ups of a name."""
LEAST_SECONDS: Final = 0.5
"""Between two look-ups of a name, at the least."""
MOST_ADDRESSES: Final = 1000
_EMPTY_ANSWERS: Final = 2
"""Answers without any address, in a row, after which the last addresses are given up: a DNS server
that has just started may know no name yet.
"""


class FollowedName:
    """Run `run` in a task. tell: is given the targets (address:port) of the name when it is known,
    and then whenever they change; not before it has one. It may raise SettingsError, and is called
    again then. seconds: between two look-ups, at least LEAST_SECONDS.

    The time to live of the records is not followed: a headless service changes before it is over.
    """

    def __init__(
        self, target: NamedTarget, tell: Callable[[list[str]], None], seconds: float = LOOK_UP_SECONDS
    ) -> None:
        self._target, self._tell = target, tell
        self._seconds = max(seconds, LEAST_SECONDS)
        self._lookup = NameLookup(target)
        self._known: list[str] = []
        self._empty_answers = 0
        self._wanted = asyncio.Event()
        self._state = ""

    def soon(self) -> None:
        """Look it up as soon as may be: an address has been lost."""
        self._wanted.set()

    async def run(self) -> None:
        """Follow the name until cancelled. While DNS fails, what is known stays."""
        clock = asyncio.get_running_loop()
        while True:
            self._wanted.clear()
            begin = clock.time()
            try:
                self._take(await self._lookup.addresses())
            except LookupFailed as error:
                self._log(f"cannot be looked up; the {len(self._known)} addresses known stay in use: {error}")
            except SettingsError as error:
                self._log(f"has addresses that cannot be called: {error}")
            await asyncio.sleep(max(0.0, begin + LEAST_SECONDS - clock.time()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(begin + self._seconds):
                    await self._wanted.wait()

    def _take(self, addresses: list[str]) -> None:
        self._empty_answers = 0 if addresses else self._empty_answers + 1
        if not addresses and self._known and self._empty_answers < _EMPTY_ANSWERS:
            return
        more = f", of which the first {MOST_ADDRESSES} are used" if len(addresses) > MOST_ADDRESSES else ""
        self._log(f"has {len(addresses)} addresses{more}")
        found = [self._target.at(address) for address in addresses[:MOST_ADDRESSES]]
        if found != self._known:
            self._tell(found)
            self._known = found

    def _log(self, state: str) -> None:
        """Once for each change: a name is looked up every second."""
        if state != self._state:
            self._state = state
            log.info("%s %s", self._target.authority, state)
