"""What a keys file says of one key: whose it is, what it may do and until when. No secret."""

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cosyserve.keys.secret import is_digest

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
_NAME_FORM = "1 to 64 characters of A-Z a-z 0-9 _ . @ - and the first one none of . @ -"
MOST_WEIGHT = 1_000
PRIORITIES = ("interactive", "batch")
"""Classes of requests, the more urgent one first."""


@dataclass(frozen=True)
class KeyLimits:
    """None: not limited."""

    concurrent: int | None = None
    """Requests that speak at once."""
    requests_per_minute: int | None = None
    characters_per_minute: int | None = None
    characters_per_day: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and (type(value) is not int or not 1 <= value <= 10**12):
                raise ValueError(f"limits.{name} is {value!r}, allowed are whole numbers from 1 on")


@dataclass(frozen=True)
class KeyRecord:
    """One key. Raises ValueError that names the field."""

    id: str
    """Names the key in logs and figures."""
    sha256: str = field(repr=False)
    """As `cosyserve.keys.secret.digest`."""
    tenant: str = ""
    """Whose voices it sees and makes; by default a tenant of its own, with the name of its id."""
    weight: float = 1.0
    """Its share of a full server, in proportion to the weights of other keys."""
    priority: str = PRIORITIES[0]
    """interactive, or batch, which waits where interactive requests do."""
    limits: KeyLimits = field(default_factory=KeyLimits)
    expires: datetime | None = None
    """From then on it is not valid."""
    admin: bool = False
    """Whether it sees and changes the voices of every tenant."""

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not _NAME.fullmatch(self.id):
            raise ValueError(f"id is {self.id!r}, expected {_NAME_FORM}")
        if not isinstance(self.sha256, str) or not is_digest(self.sha256):
            raise ValueError("sha256 is not of 64 hexadecimal digits in lower case")
        object.__setattr__(self, "tenant", self.tenant or self.id)
        if not isinstance(self.tenant, str) or not _NAME.fullmatch(self.tenant):
            raise ValueError(f"tenant is {self.tenant!r}, expected {_NAME_FORM}")
        require_weight(self.weight)
        require_priority(self.priority)
        if not isinstance(self.admin, bool):
            raise ValueError(f"admin is {self.admin!r}, expected true or false")

    def expired(self, now: datetime) -> bool:
        """now: with its zone."""
        return self.expires is not None and now >= self.expires

    def as_dict(self) -> dict[str, Any]:
        """For JSON; fields at their defaults are left out."""
        values: dict[str, Any] = {"id": self.id, "sha256": self.sha256, "tenant": self.tenant}
        plain = KeyRecord(self.id, self.sha256)
        values |= {
            name: getattr(self, name)
            for name in ("weight", "priority", "admin")
            if getattr(self, name) != getattr(plain, name)
        }
        if limits := {name: value for name, value in vars(self.limits).items() if value is not None}:
            values["limits"] = limits
        if self.expires is not None:
            values["expires"] = self.expires.isoformat()
        return values


def record_of(values: object) -> KeyRecord:
    """The inverse of `KeyRecord.as_dict`. Raises ValueError that names the field."""
    if not isinstance(values, Mapping):
        raise ValueError(f"a key is a {type(values).__name__}, expected an object")
    known = {each.name for each in dataclasses.fields(KeyRecord)}
    if unknown := sorted(set(values) - known):
        raise ValueError(f"{unknown[0]!r} is no field of a key; known: {', '.join(sorted(known))}")
    if missing := [name for name in ("id", "sha256") if name not in values]:
        raise ValueError(f"{missing[0]} is missing")
    return KeyRecord(**{**values, "limits": limits_of(values.get("limits")), "expires": _moment(values.get("expires"))})


def limits_of(values: object) -> KeyLimits:
    """None: no limits. Raises ValueError that names the field."""
    if values is None:
        return KeyLimits()
    known = [each.name for each in dataclasses.fields(KeyLimits)]
    if not isinstance(values, Mapping) or not set(values) <= set(known):
        raise ValueError(f"limits is no object with some of {', '.join(known)}")
    return KeyLimits(**values)


def require_weight(weight: object) -> None:
    """Raise ValueError unless it is a number above 0, at most 1000."""
    fits = isinstance(weight, int | float) and not isinstance(weight, bool) and math.isfinite(weight)
    if not fits or not 0 < weight <= MOST_WEIGHT:  # type: ignore[operator]
        raise ValueError(f"weight is {weight!r}, allowed are numbers above 0 to {MOST_WEIGHT}")


def require_priority(priority: object) -> None:
    """Raise ValueError for a class that does not exist."""
    if priority not in PRIORITIES:
        raise ValueError(f"priority is {priority!r}, allowed: {', '.join(PRIORITIES)}")


def _moment(text: object) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        raise ValueError(f"expires is {text!r}, no time of ISO 8601 such as 2027-01-31T12:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
