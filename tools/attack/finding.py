"""What an attack measured, and the limit that has to hold."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tools.attack.target import Target


@dataclass(frozen=True)
class Finding:
    """seen, limit: in words, with figures. held: whether the limit holds."""

    seen: str
    limit: str
    held: bool


Attack = Callable[[Target], Awaitable[Finding]]
