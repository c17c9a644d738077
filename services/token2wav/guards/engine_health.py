"""Distinguishes a request that failed from an engine that is broken."""

import logging
from collections.abc import Callable

from cosyserve.errors import CosyserveError, InternalFault, Overloaded

log = logging.getLogger(__name__)
FAULTS_IN_A_ROW = 3
"""Consecutive failed steps after which the engine counts as broken, because a device error persists
until the process ends.
"""

RETRY_AFTER_SECONDS = 1.0
OnFault = Callable[[str], None]
"""Called once, with the reason, when the engine is broken. Called from the engine's thread; must
not block.
"""


class EngineHealth:
    """Counts the failures of an engine. For the engine's thread."""

    def __init__(self, on_fault: OnFault | None) -> None:
        self._on_fault = on_fault
        self._in_a_row = 0

    def worked(self) -> None:
        """A step succeeded."""
        self._in_a_row = 0

    def failed(self, error: Exception, work: str) -> CosyserveError:
        """Called when `work`, a step or the start of a stream, raised `error`; returns the error
        for its streams.

        A CosyserveError concerns the request, so it is no evidence for or against the engine.
        Neither is a GPU without free memory: a whole sentence in one step needs memory in addition
        to that of the active streams.
        """
        if isinstance(error, CosyserveError):
            return error
        if type(error).__name__ == "OutOfMemoryError":  # torch's; here it may not even be installed
            log.warning("%s needed more memory than the device has left", work)
            return Overloaded(
                "the device has no memory left for this sentence next to the others", retry_after=RETRY_AFTER_SECONDS
            )
        log.error("%s failed", work, exc_info=error)
        self._in_a_row += 1
        if self._in_a_row >= FAULTS_IN_A_ROW:
            self.broke(f"{self._in_a_row} steps in a row failed, the last one with {type(error).__name__}: {error}")
        return InternalFault(f"decoding failed with {type(error).__name__}; the log of this service has the details")

    def broke(self, reason: str) -> None:
        """The engine cannot recover."""
        on_fault, self._on_fault = self._on_fault, None
        if on_fault is not None:
            on_fault(reason)
