"""Measurement of a backend's load: how long it works for a second of speech."""

import contextlib
import time
from collections.abc import AsyncGenerator

from cosyserve.engines.engine_load import BusyMeter, EngineLoad
from cosyserve.spec import TOKENS_PER_SECOND
from services.llm.backends.backend import Backend
from services.llm.generation.request import Generation, Grouping, Hop, Prompt, Sampling

CALIBRATION_TOKENS = 25


class MeasuredGeneration:
    """Generates with `backend` and measures it. load: of the sentences with whole text, without
    those that are cancelled before any speech. A sentence whose text arrives over time waits for
    its text, so its duration does not measure the engine.
    """

    def __init__(self, backend: Backend) -> None:
        self.load = EngineLoad()
        self._backend = backend
        self._meter = BusyMeter(self.load, time.monotonic)

    async def generate(self, generation: Generation) -> AsyncGenerator[Hop]:
        """As `Backend.generate`."""
        async with contextlib.aclosing(self._backend.generate(generation)) as hops:
            if not isinstance(generation.text, tuple):
                async for hop in hops:
                    yield hop
                return
            work = self._meter.begins()
            try:
                async for hop in hops:
                    self._meter.made(work, len(hop.tokens) / TOKENS_PER_SECOND)
                    yield hop
            finally:
                self._meter.ends(work)

    async def calibrate(self) -> None:
        """Measure about a second of speech. Raises what the backend raises."""
        calibration = Generation(
            prompt=Prompt(),
            text=(0,) * CALIBRATION_TOKENS,
            sampling=Sampling(),
            grouping=Grouping(first=CALIBRATION_TOKENS),
        )
        async with contextlib.aclosing(self.generate(calibration)) as hops:
            async for hop in hops:
                if hop.tokens:
                    return
