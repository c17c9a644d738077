"""Runs steps on the engine, turns exceptions into errors for their streams, and evaluates the
measured times: the typical duration of such steps, and the cost of speech.
"""

import logging
from collections.abc import Callable, Sequence

from cosyserve.engines.device_loss import is_device_loss, loss_reason
from cosyserve.engines.engine_load import EngineLoad
from cosyserve.errors import CosyserveError, DeviceLost, InternalFault, Overloaded
from cosyserve.metrics import names
from cosyserve.metrics.instruments import histogram
from cosyserve.spec import SAMPLE_RATE
from services.token2wav.decoders.interface import Decoded, StreamState
from services.token2wav.inputs.request import Profile
from services.token2wav.scheduling.measurements import Clock, StepCosts
from services.token2wav.scheduling.next_step import ScheduledWork
from services.token2wav.scheduling.stream_slot import StreamSlot

log = logging.getLogger(__name__)
_BATCH = histogram(names.BATCH_SIZE)
FAULTS_IN_A_ROW = 3
"""Consecutive failed steps after which the engine counts as broken, because a device error persists
until the process ends.
"""

OnFault = Callable[[str], None]
"""Called once, with the reason, when the engine is broken. Called from the engine's thread; must
not block.
"""


class EngineHealth:
    """Distinguishes a request that failed from an engine that is broken, by the failures in a row.
    For the engine's thread.
    """

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
        to that of the active streams. An error after which no call of CUDA can succeed breaks the
        engine at once.
        """
        if isinstance(error, CosyserveError):
            return error
        if is_device_loss(error):
            log.error("%s failed, and with it the GPU", work, exc_info=error)
            self.broke(reason := loss_reason(error))
            return DeviceLost(reason)
        if type(error).__name__ == "OutOfMemoryError":  # torch's; here it may not even be installed
            log.warning("%s needed more memory than the device has left", work)
            return Overloaded("the device has no memory left for this sentence next to the others")
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


Results = Sequence[Decoded | CosyserveError | None]


def record_step(
    works: Sequence[ScheduledWork], results: Results, seconds: float, costs: StepCosts, load: EngineLoad
) -> None:
    """Record a step of `seconds` in `costs` and `load`. The time of a step without audio is added
    to `load` once its streams give audio; if they are cancelled before, it is not counted.
    """
    if _is_cost_sample(works, results):
        costs.add(
            sum(work.worked for work in works),
            max([seconds, *(_sequential_seconds(one) for one in results if isinstance(one, Decoded))]),
        )
    if not _is_prompt_only(works):
        _record_speech_cost(works, results, seconds, load)


def _record_speech_cost(works: Sequence[ScheduledWork], results: Results, seconds: float, load: EngineLoad) -> None:
    sizes = [
        (work.slot, one.samples.size) for work, one in zip(works, results, strict=True) if isinstance(one, Decoded)
    ]
    samples = sum(size for _, size in sizes)
    if not samples:
        for slot, _ in sizes:
            slot.silent_seconds += seconds / len(sizes)
        return
    for slot, size in sizes:
        if size:
            seconds, slot.silent_seconds = seconds + slot.silent_seconds, 0.0
    load.worked(seconds, samples / SAMPLE_RATE)


def _sequential_seconds(decoded: Decoded) -> float:
    """Seconds that the step would have taken if no part of it had been computed early, because the
    next step may have to compute everything.
    """
    return sum(end - begin for begin, end in (decoded.flow_ns, decoded.vocoder_ns or (0, 0))) / 1e9


def _is_cost_sample(works: Sequence[ScheduledWork], results: Results) -> bool:
    """Whether the step's time is representative for the continuous profile. If a step decodes one
    stream, only a step that gave audio is.
    """
    if works[0].slot.sentence.profile is not Profile.CONTINUOUS:
        return False
    first = results[0]
    return works[0].slot.decoder.widest_step > 1 or (isinstance(first, Decoded) and first.vocoder_ns is not None)


def _is_prompt_only(works: Sequence[ScheduledWork]) -> bool:
    """Whether a step only computed prompts whose state is cached: this happens once per voice and
    is not part of the cost of speech.
    """
    return all(
        work.step_input.state.prompt_cached is False and work.step_input.until <= work.slot.schedule.prompt_tokens
        for work in works
    )


class StepRunner:
    """For the engine's thread; any thread may read the counters."""

    def __init__(self, health: EngineHealth, costs: StepCosts, load: EngineLoad, clock: Clock) -> None:
        self._health, self._costs, self._load, self._clock = health, costs, load, clock
        self.steps = 0
        """Steps begun since the start."""
        self.longest_seconds = 0.0
        """The longest step since the start."""
        self.shortest_seconds = 0.0
        """The shortest step since the start; 0 before the first one."""

    def start(self, slot: StreamSlot) -> StreamState | CosyserveError:
        """The decoder's state of a new stream, or the error that ends the stream."""
        try:
            state: StreamState = slot.decoder.start(slot.sentence)
        except Exception as error:
            return self._health.failed(error, "the start of a stream")
        return state

    def run(self, works: Sequence[ScheduledWork]) -> tuple[Results, float] | CosyserveError:
        """Run one step: the results and when it ended, or the error that ends all its streams."""
        self.steps += 1
        _BATCH.record(len(works))
        began = self._clock.now()
        try:
            results: Results = works[0].slot.decoder.step([work.step_input for work in works])
        except Exception as error:
            return self._health.failed(error, f"a step of {len(works)} streams")
        self._health.worked()
        now = self._clock.now()
        self.longest_seconds = max(self.longest_seconds, now - began)
        self.shortest_seconds = min(self.shortest_seconds or now - began, now - began)
        record_step(works, results, now - began, self._costs, self._load)
        return results, now
