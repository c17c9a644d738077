"""What runs the steps of the engine: the interface, what its implementations share, and the
engine's counters.
"""

import abc
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cosyserve.errors import CosyserveError, InternalFault
from services.llm.engine.scheduler import Scheduler, Sequence, Step
from services.llm.generation.request import FinishReason

log = logging.getLogger(__name__)
Remove = Callable[[Sequence], None]
"""Removes a sequence from the schedule and closes it. May be called from any thread, also during a
pass.
"""


@dataclass
class EngineStats:
    """Counters since the start, and gauges (the last four) as of the moment of reading."""

    prefills: int = 0
    """First passes of sequences."""
    extends: int = 0
    """Later passes of several positions, for text that arrived."""
    decode_steps: int = 0
    """Steps in which at least one sequence ran one position."""
    decode_rows: int = 0
    """Positions run in those steps."""
    longest_step_seconds: float = 0.0
    """Longest pass of the model, in seconds. A cancelled sequence stops no later than this.
    """
    running: int = 0
    """Sequences that have begun, those that wait for text included."""
    parked: int = 0
    """Sequences that wait for text, begun or not; they have no place in the batch."""
    waiting: int = 0
    """Sequences that have not begun, those that wait for their first text included."""
    reserved_kv_bytes: int = 0
    """Bytes reserved for keys and values."""

    @property
    def passes(self) -> int:
        """Model passes of any kind, a batch of decode rows counted by its rows."""
        return self.prefills + self.extends + self.decode_rows


class StepRunner(abc.ABC):
    """Runs the steps of the engine, on the engine's thread."""

    grows: bool
    """Whether a sequence whose text arrives over time takes memory as it grows, instead of all at
    the start.
    """

    def __init__(self, stats: EngineStats, remove: Remove) -> None:
        self._stats, self._remove = stats, remove

    @abc.abstractmethod
    def slot_bytes(self, capacity: int) -> int:
        """Bytes of keys and values of a sequence of `capacity` positions."""

    @abc.abstractmethod
    def plan(self, scheduler: Scheduler) -> Step | None:
        """The next step; None when nothing can run before the scheduler changes. Called with the
        engine's lock held.
        """

    @abc.abstractmethod
    def run(self, step: Step) -> None:
        """Run the step. An error that it raises stops the engine."""

    @abc.abstractmethod
    def close(self) -> None:
        """Wait for work that is still running; `run` is not called again."""

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        self._remove(sequence)
        sequence.outbox.finish(reason, sequence.script.token_count)

    def _fail(self, sequences: Iterable[Sequence], error: Exception) -> None:
        """End the sequences that are still open with the error that is being handled, or with
        InternalFault where it is not one of ours.
        """
        if not isinstance(error, CosyserveError):
            log.exception("a pass of the speech-token model failed")
            error = InternalFault(f"the speech-token engine failed: {type(error).__name__}")
        for sequence in sequences:
            if not sequence.closed:
                self._remove(sequence)
                sequence.outbox.fail(type(error)(error.message))
