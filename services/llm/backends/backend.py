"""The interface between the service and the engine that generates its tokens, and what backends
share: admission control, a first short sentence, and the measurement of their load.
"""

import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Protocol

from cosyserve.engines.compatibility import Identity
from cosyserve.engines.engine_load import BusyMeter, EngineLoad
from cosyserve.errors import Overloaded
from cosyserve.metrics import names
from cosyserve.metrics.instruments import gauge
from cosyserve.metrics.names import Metric
from cosyserve.spec import TOKENS_PER_SECOND
from services.llm.generation.config import LengthBounds
from services.llm.generation.occupancy import Occupancy, Places
from services.llm.generation.request import Generation, Grouping, Hop, Prompt
from services.llm.guards.alignment import AlignmentTable
from services.llm.settings import LlmSettings

CALIBRATION_TOKENS = 25


class Backend(Protocol):
    """An engine for speech tokens."""

    identity: Identity
    text_vocabulary: int
    """Number of text ids; ids below it are valid."""
    lengths: LengthBounds
    """How many speech tokens a sentence can have."""
    shortest_prompt: Prompt
    """The shortest prompt with which a sentence is accepted."""
    alignment: AlignmentTable | None
    """Table that aligns tokens to text ids; None when the model directory has none."""

    @property
    def occupancy(self) -> Occupancy:
        """How full it is. May be asked in any thread."""

    def generate(self, generation: Generation) -> AsyncGenerator[Hop]:
        """The hops of one sentence. The first one is empty and comes as soon as the sentence is
        accepted; during a replay an empty hop comes every `grouping.rest` replayed tokens; the last
        hop carries the outcome.

        Closing the generator, or cancelling the task that awaits it, stops the work and frees its
        memory. Raises Overloaded when full, InvalidRequest for a text that is too long for this
        engine, InternalFault when the engine fails.
        """

    async def warm_up(self) -> None:
        """Run a short request once."""

    async def close(self) -> None:
        """End all work with Unavailable and release everything."""


async def generate_first_hop(
    generate: Callable[[Generation], AsyncGenerator[Hop]], prompt: Prompt, *, text_ids: int, tokens: int
) -> None:
    """Generate the first `tokens` tokens of a text of `text_ids` ids, and cancel the rest."""
    generation = Generation(prompt=prompt, text=(0,) * text_ids, grouping=Grouping(first=tokens))
    async with contextlib.aclosing(generate(generation)) as hops:
        async for hop in hops:
            if hop.tokens:
                return


class Admission:
    """Used by one event loop. A sentence holds `running` while the engine works for it, and not
    while it waits for text. As many text streams as running and waiting sentences together may be
    open.
    """

    def __init__(self, settings: LlmSettings) -> None:
        self._most = settings.max_sequences + settings.max_waiting
        self._retry_after = settings.retry_after_seconds
        self._admitted = {False: 0, True: 0}
        self.running = Places(settings.max_sequences, self._most)

    @property
    def admitted(self) -> int:
        """Number of admitted sentences."""
        return sum(self._admitted.values())

    @contextlib.contextmanager
    def admit(self, *, text_arrives: bool) -> Iterator[None]:
        """Admit a sentence for the duration of the block. Raises Overloaded with a retry hint."""
        if self._admitted[text_arrives] >= self._most:
            what = "text streams are open" if text_arrives else "sentences are admitted"
            raise Overloaded(
                f"the speech-token engine is full: {self._admitted[text_arrives]} {what}, no more are accepted",
                retry_after=self._retry_after,
            )
        self._admitted[text_arrives] += 1
        try:
            yield
        finally:
            self._admitted[text_arrives] -= 1


class MeasuredGeneration:
    """Generates with `backend` and measures it. load: of the sentences with whole text, without
    those that are cancelled before any speech. A sentence whose text arrives over time waits for
    its text, so its duration does not measure the engine.
    """

    def __init__(self, backend: Backend) -> None:
        self.load = EngineLoad()
        self._backend = backend
        self._meter = BusyMeter(self.load, time.monotonic)
        self.active = 0
        """Sentences that are being generated, those that wait included."""
        for metric, read in _GAUGES:
            gauge(metric).watch(self, read)

    @property
    def occupancy(self) -> Occupancy:
        """How full the engine is."""
        return self._backend.occupancy

    async def generate(self, generation: Generation) -> AsyncGenerator[Hop]:
        """The hops of `Backend.generate`."""
        self.active += 1
        try:
            async with contextlib.aclosing(self._generate(generation)) as hops:
                async for hop in hops:
                    yield hop
        finally:
            self.active -= 1

    async def _generate(self, generation: Generation) -> AsyncGenerator[Hop]:
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
        prompt = self._backend.shortest_prompt
        await generate_first_hop(self.generate, prompt, text_ids=CALIBRATION_TOKENS, tokens=CALIBRATION_TOKENS)


_GAUGES: tuple[tuple[Metric, Callable[[MeasuredGeneration], float]], ...] = (
    (names.STREAMS_ACTIVE, lambda engine: engine.active),
    (names.STREAMS_LIMIT, lambda engine: engine.occupancy.accepted),
    (names.STREAMS_WAITING, lambda engine: engine.occupancy.waiting),
    (names.LLM_RUNNING, lambda engine: engine.occupancy.running),
    (names.LLM_WAITING, lambda engine: engine.occupancy.waiting),
    (names.LLM_SLOTS, lambda engine: engine.occupancy.places),
    (names.QUEUE_AGE, lambda engine: engine.occupancy.oldest),
)
