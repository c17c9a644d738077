"""How long a stage takes from what it is given to its first result."""

import time

from cosyserve.metrics import names
from cosyserve.metrics.instruments import histogram

_SECONDS = histogram(names.STAGE_FIRST_RESULT)


class FirstResult:
    """Of one call, in its task. What comes before any input or after the first result counts for
    nothing.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._over = False

    def given(self, *, latest: bool = False) -> None:
        """Input has arrived. latest: the first result needs this one, so that the time counts from
        it; otherwise from the first one.
        """
        if latest or self._since is None:
            self._since = time.monotonic()

    def made(self) -> None:
        """A result is there."""
        if not self._over and self._since is not None:
            self._over = True
            _SECONDS.record(time.monotonic() - self._since)
