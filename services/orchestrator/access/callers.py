"""Which caller a credential belongs to, and what that caller may still use. Where several
orchestrators serve, each applies an equal part of the limits of a key.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime

from cosyserve.errors import Unauthenticated
from cosyserve.keys.secret import AUTHORIZATION, LONGEST, bearer_of, is_presentable
from services.orchestrator.access.budget import Budget
from services.orchestrator.access.caller import Call, Caller
from services.orchestrator.access.key_ring import KeyRing, WatchedKeys
from services.orchestrator.access.token_verifier import TokenVerifier

MOST_BUDGETS = 20_000
_PLAIN = ("xi-api-key", "x-api-key")
_HOW = "send `authorization: Bearer KEY`, `xi-api-key: KEY` or `x-api-key: KEY`"
log = logging.getLogger(__name__)
FRESH_SECONDS = 10.0
_FIRST_SECONDS = 2.0


class LimitParts:
    """Into how many parts the limits of a key are divided: one for each orchestrator.

    count: where there is no name. name: host whose addresses are those of all orchestrators,
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
        self._name, self._now, self._resolve = name, now, resolve or _address_count
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


class Budgets:
    """The budgets of all callers that were seen lately. parts: into how many parts the limits of a
    key are divided.
    """

    def __init__(self, parts: LimitParts) -> None:
        self._parts = parts
        self._budgets: OrderedDict[str, Budget] = OrderedDict()

    def of(self, caller: Caller) -> Budget:
        """What the caller may still use, with the limits that it has now."""
        budget = self._budgets.get(caller.id)
        if budget is None:
            budget = self._budgets[caller.id] = Budget(caller.id, parts=lambda: self._parts.count)
            self._forget_unused()
        self._budgets.move_to_end(caller.id)
        budget.limits = caller.limits
        return budget

    def _forget_unused(self) -> None:
        """Without it memory would grow with every tenant that a provider's tokens name."""
        while len(self._budgets) > MOST_BUDGETS:
            name, oldest = next(iter(self._budgets.items()))
            if not oldest.unused:
                self._budgets.move_to_end(name)
                return
            del self._budgets[name]


class Callers:
    """keys: for those with a key; verifier: for those with a token; either may be None."""

    def __init__(self, keys: KeyRing | WatchedKeys | None, verifier: TokenVerifier | None, parts: LimitParts) -> None:
        self._keys, self._verifier, self._parts = keys, verifier, parts
        self._budgets = Budgets(parts)

    async def call_of(self, metadata: Iterable[tuple[str, str | bytes]] | None) -> Call:
        """The call that comes with these metadata. Raises Unauthenticated, and Unavailable while a
        token cannot be checked.
        """
        credential = credential_of(metadata)
        await self._parts.refresh()
        caller = await self._caller_of(credential)
        return Call(caller, self._budgets.of(caller))

    async def _caller_of(self, credential: str) -> Caller:
        if self._verifier is not None and (self._keys is None or self._verifier.takes(credential)):
            return await self._verifier.caller_of(credential)
        record = None if self._keys is None else (await self._keys.ring()).find(credential)
        if record is None:
            raise Unauthenticated("the API key is not valid")
        if record.expired(datetime.now(UTC)):
            raise Unauthenticated(f"the API key {record.id} has expired")
        return Caller.of_key(record)


def credential_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The key or token that came with a call. Raises Unauthenticated, which says what is missing
    and quotes nothing.
    """
    found: dict[str, str] = {}
    for name, value in metadata or ():
        if name == AUTHORIZATION and isinstance(value, str):
            found.setdefault(bearer_of(value), name)
        elif name in _PLAIN and isinstance(value, str):
            found.setdefault(value.strip(), name)
    found.pop("", None)
    if not found:
        raise Unauthenticated(f"no API key came with the call; {_HOW}")
    if len(found) > 1:
        raise Unauthenticated(f"the call has {len(found)} different API keys; send one")
    (key,) = found
    if not is_presentable(key):
        raise Unauthenticated(f"the API key is not of 1 to {LONGEST} visible ASCII characters")
    return key


async def _address_count(name: str) -> int:
    found = await asyncio.get_running_loop().getaddrinfo(name, None)
    return len({address[0] for *_, address in found})
