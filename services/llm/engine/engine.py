"""Iteration-level batching: one thread owns the model and runs one step after another for all
sequences that are in.

    submit -> wait for a place -> prompt's pass -> one position a step with everyone else -> end, error or cancel

Sequences come and go between steps. The thread sleeps on a condition, never on a clock.
"""

import dataclasses
import itertools
import logging
import sys
import threading
from collections.abc import Callable
from typing import Protocol

import torch

from cosyserve.errors import CosyserveError, InternalFault, InvalidRequest, Unavailable
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.outbox import Outbox
from services.llm.engine.passes import Passes, ReadablePasses
from services.llm.engine.scheduler import Limits, Scheduler, Step
from services.llm.engine.sequence import Sequence
from services.llm.engine.stats import EngineStats
from services.llm.engine.stepper import Stepper
from services.llm.generation.config import LlmConfig
from services.llm.generation.script import Script

log = logging.getLogger(__name__)


class Model(Protocol):
    """What the engine itself wants to know of a model."""

    @property
    def config(self) -> LlmConfig: ...


class StepRunner(Protocol):
    """Who runs the steps of the sequences that are in, on the engine's thread."""

    @property
    def grows(self) -> bool:
        """Whether a sequence whose text arrives takes memory as it grows, instead of all at the
        start.
        """
        ...

    def slot_bytes(self, capacity: int) -> int:
        """Memory for keys and values of a sequence of so many positions."""
        ...

    def plan(self, scheduler: Scheduler) -> Step | None:
        """What to run next; None: nothing until something changes. Called under the engine's
        lock.
        """
        ...

    def run(self, step: Step) -> None:
        """Run it. An error that is raised ends the engine."""
        ...

    def close(self) -> None:
        """Wait for what is still running; nothing is run any more."""
        ...


Remove = Callable[[Sequence], None]
"""Takes a sequence out of the schedule and closes it; may be called from any thread, also during a
pass.
"""


class Engine:
    """Runs sequences on one model. All methods may be called from any thread and return at once,
    but for `close`.

    limits: how many sequences, and bytes of keys and values, are taken on. batch_invariant: rows
    are run one by one (see `stepper`). threads: intra-op threads of torch (None: torch's choice).
    on_fault: called once with the reason, from the engine's thread, should it break for good; all
    sequences have got InternalFault by then, and so does who comes later. steps: makes what runs
    the steps, None for the readable `Stepper`; passes: how that one runs one sequence alone, None
    for the readable way. Source of the scheduling: Orca (Yu et al., 2022).
    """

    def __init__(
        self,
        model: Model,
        limits: Limits,
        *,
        batch_invariant: bool = False,
        threads: int | None = None,
        on_fault: Callable[[str], None] | None = None,
        steps: Callable[[EngineStats, Remove], StepRunner] | None = None,
        passes: Passes | None = None,
    ) -> None:
        self.model = model
        self._threads, self._on_fault = threads, on_fault
        self._scheduler = Scheduler(limits)
        self._changed = threading.Condition()
        self._stats = EngineStats()
        self._steps: StepRunner
        if steps:
            self._steps = steps(self._stats, self.cancel)
        else:
            assert isinstance(model, SpeechTokenModel)  # noqa: S101
            self._steps = Stepper(
                model, passes or ReadablePasses(model), self._stats, self.cancel, batch_invariant=batch_invariant
            )
        self._over: tuple[type[CosyserveError], str] | None = None
        """Class and text of the error for everyone; each gets an instance of its own, since raising
        one grows its traceback.
        """
        self._thread = threading.Thread(target=self._work, name="llm-engine", daemon=True)
        self._thread.start()

    def submit(self, script: Script, capacity: int, outbox: Outbox, begins_with: int | None = None) -> Sequence:
        """Accept a sequence of at most `capacity` positions. begins_with: how many of them it has
        to have memory for to begin, where it takes more as it grows (`StepRunner.grows`); None: all. One
        that can grow no more is ended with Overloaded.

        Raises Overloaded when full, InvalidRequest when the slot alone exceeds the key-value
        memory, Unavailable when the engine is closed, InternalFault when it broke.
        """
        wanted, limit = self._steps.slot_bytes(capacity), self._scheduler.limits.kv_bytes
        if limit is not None and wanted > limit:
            raise InvalidRequest(
                f"the sentence may need {capacity} positions, {wanted} bytes of keys and values; the engine has {limit}"
            )
        if begins_with is not None and self._steps.grows:
            wanted = self._steps.slot_bytes(min(begins_with, capacity))
        sequence = Sequence(script, capacity, wanted, outbox)
        with self._changed:
            if self._over:
                kind, message = self._over
                raise kind(message)
            self._scheduler.add(sequence)
            self._changed.notify()
        return sequence

    def feed(self, sequence: Sequence, ids: list[int] | None) -> None:
        """More text ids for a sequence whose script takes them; None ends its text."""
        with self._changed:
            if not sequence.closed:
                sequence.arrivals.append(ids)
                self._scheduler.changed = True
                self._changed.notify()

    def cancel(self, sequence: Sequence) -> None:
        """No further step for this sequence; its slot is free at once (after the pass that may be
        under way).
        """
        with self._changed:
            self._scheduler.remove(sequence)
            self._changed.notify()

    @property
    def longest(self) -> int:
        """Positions of the longest sequence that the key-value memory holds; a great number where
        it has no limit.
        """
        limit = self._scheduler.limits.kv_bytes
        if limit is None:
            return sys.maxsize
        # A slot is a number of equal pieces: pages, or single positions.
        piece = self._steps.slot_bytes(1)
        inside = next(count for count in itertools.count(1) if self._steps.slot_bytes(count + 1) > piece)
        return limit // piece * inside

    @property
    def stats(self) -> EngineStats:
        """A copy as of now."""
        with self._changed:
            return dataclasses.replace(
                self._stats,
                running=len(self._scheduler.running),
                parked=self._scheduler.parked,
                waiting=len(self._scheduler.waiting),
                reserved_kv_bytes=self._scheduler.reserved_bytes,
            )

    def close(self) -> None:
        """End all sequences with Unavailable and the thread with them; blocks until the pass under
        way is over.
        """
        self._end_all(Unavailable, "the speech-token engine is shutting down")
        self._thread.join()
        self._steps.close()

    def _work(self) -> None:
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        try:
            with torch.inference_mode():
                while self._turn():
                    pass
        except Exception as error:
            log.exception("the speech-token engine broke")
            reason = f"the speech-token engine broke with {type(error).__name__} and has to be started anew"
            self._end_all(InternalFault, reason)
            if self._on_fault:
                self._on_fault(reason)

    def _end_all(self, kind: type[CosyserveError], message: str) -> None:
        with self._changed:
            self._over = self._over or (kind, message)
            left = [*self._scheduler.running, *self._scheduler.waiting]
            for sequence in left:
                self._scheduler.remove(sequence)
            self._changed.notify()
        for sequence in left:
            sequence.outbox.fail(kind(message))

    def _turn(self) -> bool:
        """Wait for work and do one step; False when the engine is over."""
        with self._changed:
            while not self._over:
                step = self._steps.plan(self._scheduler)
                if step is not None:
                    break
                self._changed.wait()
            else:
                return False
        self._steps.run(step)
        return True
