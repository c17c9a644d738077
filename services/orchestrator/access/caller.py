"""The caller of a call, as every layer of the orchestrator finds it."""

from contextvars import ContextVar
from dataclasses import dataclass, field

from cosyserve.keys.key_record import PRIORITIES, KeyLimits, KeyRecord
from services.orchestrator.access.budget import Budget


@dataclass(frozen=True)
class Caller:
    """What a key or a token says of its bearer."""

    id: str
    """Of the key, or `jwt:` and the tenant; empty while the service has no keys."""
    tenant: str | None
    """Whose voices it sees besides those of everyone; None: all voices, as a service without keys
    gives them to each caller.
    """
    weight: float = 1.0
    priority: int = 0
    """Index in `PRIORITIES`: 0 is the most urgent class."""
    limits: KeyLimits = field(default_factory=KeyLimits)
    admin: bool = False

    @classmethod
    def of_key(cls, record: KeyRecord) -> "Caller":
        priority = PRIORITIES.index(record.priority)
        return cls(record.id, record.tenant, record.weight, priority, record.limits, record.admin)

    @property
    def scope(self) -> str | None:
        """The tenant whose voices, besides those of everyone, are there for it; None: all."""
        return None if self.admin else self.tenant

    @property
    def owner(self) -> str:
        """The tenant of the voices that it makes; empty: everyone."""
        return self.tenant or ""


OPEN = Caller("", None)
"""Any caller of a service without keys."""


@dataclass(eq=False)
class Call:
    """One call and what it has used so far."""

    caller: Caller = OPEN
    budget: Budget = field(default_factory=Budget)
    request_id: str = ""
    """As in the log line of the request; empty before it is known."""
    trace_id: str = ""
    """Of its trace; empty without one."""
    characters: int = 0
    """Of text that was taken."""
    audio_seconds: float = 0.0
    """That were sent."""

    def take_text(self, characters: int) -> None:
        """Count text that arrived after the call was admitted."""
        self.characters += characters
        self.budget.charge(characters)


CALL: ContextVar[Call] = ContextVar("the call that is being answered")
"""Set by the gate, so that no method can forget to pass it on."""


def current_call() -> Call:
    """The call of this task; outside of one, and without keys, one of an open service."""
    return CALL.get(None) or Call()
