"""Who a credential belongs to, with what the caller may still use."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Protocol

from cosyserve.errors import Unauthenticated
from services.orchestrator.access.budgets import Budgets
from services.orchestrator.access.caller import Call, Caller
from services.orchestrator.access.credentials import credential_of
from services.orchestrator.access.key_ring import KeyRing
from services.orchestrator.access.limit_parts import LimitParts
from services.orchestrator.access.token_verifier import TokenVerifier


class Keys(Protocol):
    """Where keys come from."""

    async def ring(self) -> KeyRing: ...


class FixedKeys:
    """Keys that do not change."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring

    async def ring(self) -> KeyRing:
        return self._ring


class Callers:
    """keys: for those with a key; verifier: for those with a token; either may be None."""

    def __init__(self, keys: Keys | None, verifier: TokenVerifier | None, parts: LimitParts) -> None:
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
