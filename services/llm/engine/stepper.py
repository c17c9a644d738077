"""What runs the steps of the engine, on its thread: the interface, what its implementations share,
and the readable one, which runs the passes of a step and passes the scores to the scripts.

In `batch_invariant` mode rows run one by one through identical shapes, so that a sequence's numbers
do not depend on other sequences. Otherwise one pass serves all rows, equal within rounding. An
error ends only the sequences of its pass, unless several passes in a row fail: then the device is
unusable, and the engine stops.
"""

import abc
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from cosyserve.engines.device_loss import is_device_loss
from cosyserve.errors import CosyserveError, InternalFault
from services.llm.engine.kv_cache import SequenceCache, cache_bytes
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.scheduler import Scheduler, Sequence, Step
from services.llm.generation.outbox import non_finite
from services.llm.generation.request import FinishReason
from services.llm.generation.sampling import Scores
from services.llm.generation.script import Input, Script

log = logging.getLogger(__name__)
MOST_FAILED_PASSES = 3
"""This many passes that fail in a row, with an error that is no CosyserveError, stop the engine.
"""

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
        InternalFault where it is not one of ours. Raises an error that means that the GPU is lost:
        it stops the engine.
        """
        if is_device_loss(error):
            raise error
        if not isinstance(error, CosyserveError):
            log.exception("a pass of the speech-token model failed")
            error = InternalFault(f"the speech-token engine failed: {type(error).__name__}")
        for sequence in sequences:
            if not sequence.closed:
                self._remove(sequence)
                sequence.outbox.fail(type(error)(error.message))


class PassesFail(Exception):
    """Several passes in a row failed."""


class Passes(Protocol):
    """The model pass of a single sequence. Used by the engine's thread only."""

    def scores(self, inputs: list[Input], cache: SequenceCache, of_voice: int) -> Scores:
        """Log-probabilities [ids] after the last of n >= 1 inputs; the cache grows by n. of_voice:
        as `Script.of_voice`.

        A pure function of the arguments: other sequences do not change a bit of it.
        """


class ReadablePasses:
    """For any device: one call of the model for all inputs."""

    def __init__(self, model: SpeechTokenModel) -> None:
        self._model = model

    def scores(self, inputs: list[Input], cache: SequenceCache, of_voice: int) -> Scores:
        hidden = self._model.forward(self._model.embed(inputs), cache)
        scores: Scores = self._model.log_probabilities(hidden[-1:])[0].cpu().numpy()
        return scores


class Stepper(StepRunner):
    """passes: how a single sequence runs, None for `ReadablePasses`. batch_invariant: run rows one
    by one.
    """

    grows = False

    def __init__(
        self,
        model: SpeechTokenModel,
        stats: EngineStats,
        remove: Remove,
        *,
        passes: Passes | None = None,
        batch_invariant: bool = False,
    ) -> None:
        super().__init__(stats, remove)
        self._model, self._passes = model, passes or ReadablePasses(model)
        self._batch_invariant = batch_invariant
        self._failed_passes = 0

    def slot_bytes(self, capacity: int) -> int:
        return cache_bytes(self._model.config, capacity)

    def plan(self, scheduler: Scheduler) -> Step | None:
        return scheduler.next()

    def close(self) -> None:
        """As `StepRunner.close`: no pass runs longer than its step."""

    def run(self, step: Step) -> None:
        """Run all passes of one step. Before each pass, sequences that were closed are skipped.
        Raises PassesFail when the device is unusable.
        """
        if step.extend:
            self._run_single(step.extend)
        self._stats.decode_steps += not all(sequence.closed for sequence in step.decode)
        if not self._batch_invariant:
            self._run_batch(step.decode)
        else:
            for sequence in step.decode:
                self._run_single(sequence)
        if self._failed_passes >= MOST_FAILED_PASSES:
            raise PassesFail(f"{self._failed_passes} passes of the speech-token model failed in a row")

    def _run_single(self, sequence: Sequence) -> None:
        """One pass of one sequence."""
        with self._failing([sequence]):
            cache = self._slot(sequence)
            if cache is None:
                return
            of_voice, inputs = sequence.script.of_voice, sequence.script.take()
            first, start_ns = not sequence.outbox.started, time.time_ns()
            with self._timed():
                scores = self._passes.scores(inputs, cache, of_voice)
            if first:
                sequence.outbox.prefilled(start_ns, len(inputs))
            self._stats.prefills += first
            self._stats.extends += not first and len(inputs) > 1
            self._stats.decode_rows += not first and len(inputs) == 1
            self._settle(sequence, scores)

    def _run_batch(self, candidates: list[Sequence]) -> None:
        """One pass for the one pending input of each sequence."""
        slots: list[tuple[Sequence, SequenceCache]] = []
        for sequence in candidates:
            with self._failing([sequence]):
                cache = self._slot(sequence)
                if cache is not None:
                    slots.append((sequence, cache))
        if not slots:
            return
        with self._failing([sequence for sequence, _ in slots]):
            inputs = [item for sequence, _ in slots for item in sequence.script.take()]
            with self._timed():
                hidden = self._model.forward_rows(self._model.embed(inputs), [cache for _, cache in slots])
                scores = self._model.log_probabilities(hidden).cpu().numpy()
            self._stats.decode_rows += len(slots)
            for (sequence, _), row in zip(slots, scores, strict=True):
                with self._failing([sequence], of_pass=False):
                    self._settle(sequence, row)

    def _slot(self, sequence: Sequence) -> SequenceCache | None:
        """The KV slot of the sequence; None when it was closed meanwhile, or when its capacity is
        used up, which ends it.
        """
        cache = sequence.cache
        if sequence.closed:
            return None
        if cache is None:
            cache = sequence.cache = SequenceCache.reserve(self._model.config, sequence.capacity, self._model.device)
        if cache.length + sequence.script.ready > cache.capacity:
            self._finish(sequence, FinishReason.LENGTH)
            return None
        return cache

    def _settle(self, sequence: Sequence, scores: Scores) -> None:
        """Pass the scores to the script, and the token that it chooses to the reader."""
        if sequence.closed:
            # frees a slot that was allocated while another thread closed the sequence
            sequence.close()
            return
        if not np.isfinite(scores).all():
            raise non_finite(sequence.script)
        sequence.outbox.decided(sequence.script, lambda: sequence.script.decide(scores))
        if sequence.script.finish is not None:
            self._finish(sequence, sequence.script.finish)

    @contextlib.contextmanager
    def _failing(self, sequences: list[Sequence], *, of_pass: bool = True) -> Iterator[None]:
        """An error in the block ends these sequences only. of_pass: the device may have caused
        it.
        """
        try:
            yield
        except Exception as error:
            self._failed_passes += of_pass and not isinstance(error, CosyserveError)
            self._fail(sequences, error)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Measure a pass, including the copy of its scores to the host."""
        started = time.perf_counter()
        yield
        self._failed_passes = 0
        self._stats.longest_step_seconds = max(self._stats.longest_step_seconds, time.perf_counter() - started)


class Alone:
    """Runs one script without an engine, one pass after another: the readable reference against
    which the engine is tested. capacity: positions to reserve."""

    def __init__(self, model: SpeechTokenModel, script: Script, capacity: int) -> None:
        self._passes, self._script = ReadablePasses(model), script
        self._cache = SequenceCache.reserve(model.config, capacity, model.device)

    @torch.inference_mode()
    def run(self) -> list[int]:
        """The tokens that the script sends until it waits for text or ends. Raises InternalFault
        when the capacity does not suffice.
        """
        sent = []
        while ready := self._script.ready:
            if self._cache.length + ready > self._cache.capacity:
                raise InternalFault(f"the sequence needs more than its {self._cache.capacity} positions")
            token = self._script.decide(self._passes.scores(self._script.take(), self._cache, of_voice=0))
            if token is not None:
                sent.append(token)
        return sent
