"""Iteration-level batching: one thread owns the model and runs one step after another for all
sequences.

    submit -> wait for a slot -> prefill -> one position per step, batched -> end, error or cancel

Sequences are added and removed between steps. The thread waits on a condition and never polls.
"""

import dataclasses
import itertools
import logging
import sys
import threading
import time
from collections.abc import Callable

import torch

from cosyserve.engines.device_loss import is_device_loss, loss_reason
from cosyserve.errors import CallersDeadline, CosyserveError, DeviceLost, InternalFault, InvalidRequest, Unavailable
from cosyserve.metrics import names
from cosyserve.metrics.instruments import histogram
from services.llm.engine.scheduler import Limits, Scheduler, Sequence
from services.llm.engine.stepper import EngineStats, Remove, StepRunner
from services.llm.generation.config import LlmConfig
from services.llm.generation.occupancy import Occupancy
from services.llm.generation.outbox import Outbox
from services.llm.generation.script import Script

log = logging.getLogger(__name__)
_BATCH = histogram(names.BATCH_SIZE)


class Engine:
    """Runs sequences on one model. All methods may be called from any thread; all but `close`
    return at once.

    config: of the model. limits: how many sequences, and bytes of keys and values, the engine
    accepts. steps: makes the step runner. threads: intra-op threads of torch (None: torch's
    choice). on_fault: called once with the reason, from the engine's thread, when the engine stops
    for good; by then all sequences have received InternalFault, or DeviceLost if the GPU is lost,
    as later ones will. Source of the scheduling: Orca (Yu et al., 2022).
    """

    def __init__(
        self,
        config: LlmConfig,
        limits: Limits,
        steps: Callable[[EngineStats, Remove], StepRunner],
        *,
        threads: int | None = None,
        on_fault: Callable[[str], None] | None = None,
    ) -> None:
        self.config, self._threads, self._on_fault = config, threads, on_fault
        self._scheduler = Scheduler(limits)
        self._changed = threading.Condition()
        self._stats = EngineStats()
        self._in_step: list[Sequence] = []
        self._steps = steps(self._stats, self.cancel)
        self._stopped_by: tuple[type[CosyserveError], str] | None = None
        """Class and text of the error that all sequences receive. Each gets its own instance, since
        raising an exception extends its traceback.
        """
        self._thread = threading.Thread(target=self._work, name="llm-engine", daemon=True)
        self._thread.start()

    def submit(
        self,
        script: Script,
        capacity: int,
        outbox: Outbox,
        initial_positions: int | None = None,
        deadline: float | None = None,
    ) -> Sequence:
        """Accept a sequence of at most `capacity` positions. initial_positions: positions for which
        memory is reserved before it begins, where it takes more as it grows (`StepRunner.grows`);
        None: all. A sequence that cannot grow further ends with Overloaded, one whose deadline
        (on the monotonic clock) passes, or surely will before it begins, with CallersDeadline.

        Raises Overloaded when full, InvalidRequest when the slot alone exceeds the key-value
        memory, Unavailable when the engine is closed, InternalFault when it has failed.
        """
        wanted, limit = self._steps.slot_bytes(capacity), self._scheduler.limits.kv_bytes
        if limit is not None and wanted > limit:
            raise InvalidRequest(
                f"the sentence may need {capacity} positions, {wanted} bytes of keys and values; the engine has {limit}"
            )
        if initial_positions is not None and self._steps.grows:
            wanted = self._steps.slot_bytes(min(initial_positions, capacity))
        sequence = Sequence(script, capacity, wanted, outbox, deadline=deadline)
        with self._changed:
            if self._stopped_by:
                kind, message = self._stopped_by
                raise kind(message)
            self._scheduler.add(sequence)
            self._changed.notify()
        return sequence

    def feed(self, sequence: Sequence, ids: list[int] | None) -> None:
        """Add text ids to a sequence whose script accepts them; None marks the text as complete."""
        with self._changed:
            if not sequence.closed:
                sequence.arrivals.append(ids)
                self._scheduler.changed = True
                self._changed.notify()

    def cancel(self, sequence: Sequence) -> None:
        """Run no further step of this sequence. Its slot is free at once, or after the pass that is
        running.
        """
        with self._changed:
            self._scheduler.remove(sequence)
            if sequence not in self._in_step:
                sequence.let_go()
            self._changed.notify()

    @property
    def occupancy(self) -> Occupancy:
        """What runs and waits now, without sentences that wait for their text."""
        with self._changed:
            running, waiting = (
                sum(not sequence.parked for sequence in sequences)
                for sequences in (self._scheduler.running, self._scheduler.waiting)
            )
            limits = self._scheduler.limits
            accepted = limits.running + limits.waiting
            return Occupancy(running, waiting, limits.running, accepted, self._scheduler.oldest)

    @property
    def longest(self) -> int:
        """Most positions of a sequence that fits into the key-value memory; sys.maxsize without a
        limit.
        """
        limit = self._scheduler.limits.kv_bytes
        if limit is None:
            return sys.maxsize
        # A slot consists of units of equal size: pages, or single positions.
        unit = self._steps.slot_bytes(1)
        positions_per_unit = next(count for count in itertools.count(1) if self._steps.slot_bytes(count + 1) > unit)
        return limit // unit * positions_per_unit

    @property
    def stats(self) -> EngineStats:
        """A snapshot of the counters and gauges."""
        with self._changed:
            return dataclasses.replace(
                self._stats,
                running=len(self._scheduler.running),
                parked=self._scheduler.parked,
                waiting=len(self._scheduler.waiting),
                reserved_kv_bytes=self._scheduler.reserved_bytes,
            )

    def close(self) -> None:
        """End all sequences with Unavailable and stop the thread; blocks until the running pass is
        over.
        """
        self._end_all(Unavailable, "the speech-token engine is shutting down")
        self._thread.join()
        self._steps.close()

    def _work(self) -> None:
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        try:
            with torch.inference_mode():
                while self._run_step():
                    pass
        except Exception as error:
            log.exception("the speech-token engine failed")
            lost = is_device_loss(error)
            reason = (
                loss_reason(error)
                if lost
                else f"the speech-token engine failed with {type(error).__name__} and has to be restarted"
            )
            self._end_all(DeviceLost if lost else InternalFault, reason)
            if self._on_fault:
                self._on_fault(reason)

    def _end_all(self, kind: type[CosyserveError], message: str) -> None:
        with self._changed:
            self._stopped_by = self._stopped_by or (kind, message)
            left = [*self._scheduler.running, *self._scheduler.waiting]
            for sequence in left:
                self._scheduler.remove(sequence)
            self._changed.notify()
        for sequence in left:
            sequence.let_go()
            sequence.outbox.fail(kind(message))

    def _drop_late(self) -> None:
        """End the sequences whose callers have given up, or will before anything comes of them."""
        for sequence in self._scheduler.late(time.monotonic()):
            queue = "llm.step" if sequence.outbox.started else "llm.waiting"
            self._scheduler.remove(sequence)
            sequence.let_go()
            sequence.outbox.fail(CallersDeadline("the sentence was not begun in time for its caller", queue=queue))

    def _run_step(self) -> bool:
        """Wait for work and run one step; False when the engine has stopped."""
        with self._changed:
            while not self._stopped_by:
                self._drop_late()
                step = self._steps.plan(self._scheduler)
                if step is not None:
                    break
                self._changed.wait()
            else:
                return False
            self._in_step = [step.extend, *step.decode] if step.extend else step.decode
        if self._in_step:
            _BATCH.record(len(self._in_step))
        self._steps.run(step)
        with self._changed:
            for sequence in self._in_step:
                if sequence.closed:
                    sequence.let_go()
            self._in_step = []
        return True
