"""Runs steps on the engine, measures them, and turns exceptions into errors for their streams."""

from collections.abc import Sequence

from cosyserve.engines.engine_load import EngineLoad
from cosyserve.errors import CosyserveError
from services.token2wav.decoders.interface import StreamState
from services.token2wav.scheduling.measurements import Clock, StepCosts
from services.token2wav.scheduling.next_step import ScheduledWork
from services.token2wav.scheduling.step_runner import EngineHealth, Results, record_step
from services.token2wav.scheduling.stream_slot import StreamSlot


class StepRunner:
    """For the engine's thread; any thread may read the counters."""

    def __init__(self, health: EngineHealth, costs: StepCosts, load: EngineLoad, clock: Clock) -> None:
        self._health, self._costs, self._load, self._clock = health, costs, load, clock
        self.steps = 0
        """Steps begun since the start."""
        self.longest_seconds = 0.0
        """The longest step since the start."""

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
        began = self._clock.now()
        try:
            results: Results = works[0].slot.decoder.step([work.step_input for work in works])
        except Exception as error:
            return self._health.failed(error, f"a step of {len(works)} streams")
        self._health.worked()
        now = self._clock.now()
        self.longest_seconds = max(self.longest_seconds, now - began)
        record_step(works, results, now - began, self._costs, self._load)
        return results, now
