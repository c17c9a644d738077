"""Calls in progress at a service, in all and for each caller.

A caller says who it is in its user agent, a channel option: it is sent with every call, passes
proxies, and survives a new connection.
"""

import contextlib
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cosyserve.tasks import Changes

_AGENT: Final = "cosyserve-caller/"


def new_caller() -> tuple[str, str]:
    """Channel option of a caller that differs from all others."""
    return "grpc.primary_user_agent", f"{_AGENT}{secrets.token_hex(8)}"


def caller_of(metadata: Any) -> str:
    """The caller that the metadata of a call name; empty: one that does not say."""
    for key, value in metadata or ():
        if key == "user-agent":
            first = str(value).partition(" ")[0]
            return first if first.startswith(_AGENT) else ""
    return ""


class CallCounts:
    """Used inside one event loop; its size is bounded by the number of calls."""

    def __init__(self) -> None:
        self.changes = Changes()
        """Notified when a call begins or ends."""
        self._own: Counter[str] = Counter()
        self._elsewhere: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Calls in progress, in all processes of the service."""
        return self._own.total() + self._elsewhere.total()

    def others_than(self, caller: str) -> int:
        """Calls in progress of other callers."""
        mine = self._own[caller] + self._elsewhere[caller] if caller else 0
        return self.total - mine

    def own(self) -> dict[str, int]:
        """Calls in progress in this process, by caller; those who do not say who they are together,
        under no name.
        """
        return dict(self._own)

    def count_elsewhere(self, calls: Mapping[str, int]) -> None:
        """Calls in progress, by caller, in the other processes of the same service."""
        self._elsewhere = Counter(calls)
        self.changes.notify()

    @contextlib.contextmanager
    def counted(self, caller: str) -> Iterator[None]:
        """A call of `caller` is in progress while the block runs."""
        self._own[caller] += 1
        self.changes.notify()
        try:
            yield
        finally:
            self._own[caller] -= 1
            if not self._own[caller]:
                del self._own[caller]
            self.changes.notify()
