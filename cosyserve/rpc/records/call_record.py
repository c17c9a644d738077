"""What the layers of a server note about one call for those who count it."""

import time
from contextvars import ContextVar
from dataclasses import dataclass, field

from cosyserve.errors import CosyserveError, Overloaded


@dataclass
class CallRecord:
    """Of the call of the current task and those that it starts."""

    method: str = ""
    """Of our own services its name alone; never what a caller made up."""
    arrived: float = field(default_factory=time.monotonic)
    """When its head arrived, in seconds of the monotonic clock."""
    text_arrives: bool = False
    """Whether its text is written while it is spoken."""
    limit: str = ""
    """Which limit refused it, one of `names.LIMITS`; empty: none."""

    def __post_init__(self) -> None:
        self._text: float | None = None

    @property
    def asked(self) -> float:
        """When there was something to speak: its head, or of arriving text the first that is."""
        return self.arrived if self._text is None else self._text

    def text_came(self) -> None:
        """Some of its text, which is not blank, has arrived over time."""
        if self._text is None:
            self._text = time.monotonic()

    def answered(self, error: CosyserveError) -> None:
        """The call ends with this error."""
        if isinstance(error, Overloaded):
            self.limit = error.limit


RECORD: ContextVar[CallRecord] = ContextVar("record of the call")


def current_record() -> CallRecord:
    """Of the current call; where nothing counts calls, a new one."""
    return RECORD.get(None) or CallRecord()
