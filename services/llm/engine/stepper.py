"""The readable step runner: runs the passes of a step and passes the scores to the scripts, on the
engine's thread.

In `batch_invariant` mode rows run one by one through identical shapes, so that a sequence's numbers
do not depend on other sequences. Otherwise one pass serves all rows, equal within rounding. An
error ends only the sequences of its pass, unless several passes in a row fail: then the device is
unusable, and the engine stops.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator

import numpy as np

from cosyserve.errors import CosyserveError, InternalFault, NonFinite
from services.llm.engine.kv_cache import SequenceCache, cache_bytes
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.scheduler import Scheduler, Sequence, Step
from services.llm.engine.step_runner import EngineStats
from services.llm.engine.stepper import Passes
from services.llm.generation.request import FinishReason
from services.llm.generation.sampling import Scores

log = logging.getLogger(__name__)
MOST_FAILED_PASSES = 3
"""This many passes that fail in a row, with an error that is no CosyserveError, stop the engine.
"""


class PassesFail(Exception):
    """Several passes in a row failed."""


class Stepper:
    """Implements `StepRunner`. remove: removes a sequence from the schedule and closes it; may be
    called from any thread, also during a pass. passes: run a single sequence.
    """

    def __init__(
        self,
        model: SpeechTokenModel,
        passes: Passes,
        stats: EngineStats,
        remove: Callable[[Sequence], None],
        *,
        batch_invariant: bool,
    ) -> None:
        self._model, self._passes, self._stats, self._remove, self._batch_invariant = (
            model,
            passes,
            stats,
            remove,
            batch_invariant,
        )
        self._failed_passes = 0

    grows = False
    """As `StepRunner.grows`."""

    def slot_bytes(self, capacity: int) -> int:
        """As `StepRunner.slot_bytes`."""
        return cache_bytes(self._model.config, capacity)

    def plan(self, scheduler: Scheduler) -> Step | None:
        """As `StepRunner.plan`."""
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
            raise NonFinite(
                f"the speech-token model produced non-finite log-probabilities at token {sequence.script.token_count}"
            )
        tokens_before = sequence.script.token_count
        token = sequence.script.decide(scores)
        reason = sequence.script.finish
        if token is not None:
            sequence.outbox.add(token, last=reason is not None)
        elif sequence.script.token_count > tokens_before:
            sequence.outbox.replayed()
        if reason is not None:
            self._finish(sequence, reason)

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        self._remove(sequence)
        sequence.outbox.finish(reason, sequence.script.token_count)

    @contextlib.contextmanager
    def _failing(self, sequences: list[Sequence], *, of_pass: bool = True) -> Iterator[None]:
        """An error in the block ends these sequences only. of_pass: the device may have caused
        it.
        """
        try:
            yield
        except Exception as error:
            fault = (
                error
                if isinstance(error, CosyserveError)
                else InternalFault(f"the speech-token engine failed: {type(error).__name__}")
            )
            if fault is not error:
                self._failed_passes += of_pass
                log.exception("a pass of the speech-token model failed for %d sequences", len(sequences))
            for sequence in sequences:
                if not sequence.closed:
                    self._remove(sequence)
                    sequence.outbox.fail(type(fault)(fault.message))

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Measure a pass, including the copy of its scores to the host."""
        started = time.perf_counter()
        yield
        self._failed_passes = 0
        self._stats.longest_step_seconds = max(self._stats.longest_step_seconds, time.perf_counter() - started)
