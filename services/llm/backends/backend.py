"""The interface between the service and the engine that generates its tokens."""

from collections.abc import AsyncGenerator
from typing import Protocol

from cosyserve.engines.compatibility import Identity
from services.llm.generation.config import LengthBounds
from services.llm.generation.request import Generation, Hop
from services.llm.guards.alignment import AlignmentTable


class Backend(Protocol):
    """An engine for speech tokens."""

    @property
    def identity(self) -> Identity: ...

    @property
    def text_vocabulary(self) -> int:
        """Number of text ids; ids below it are valid."""
        ...

    @property
    def lengths(self) -> LengthBounds:
        """How many speech tokens a sentence can have."""
        ...

    @property
    def alignment(self) -> AlignmentTable | None:
        """Table that aligns tokens to text ids; None when the model directory has none."""
        ...

    def generate(self, generation: Generation) -> AsyncGenerator[Hop]:
        """The hops of one sentence. The first one is empty and comes as soon as the sentence is
        accepted; during a replay an empty hop comes every `grouping.rest` replayed tokens; the last
        hop carries the outcome.

        Closing the generator, or cancelling the task that awaits it, stops the work and frees its
        memory. Raises Overloaded when full, InvalidRequest for a text that is too long for this
        engine, InternalFault when the engine fails.
        """
        ...

    async def warm_up(self) -> None:
        """Run a short request once."""
        ...

    async def close(self) -> None:
        """End all work with Unavailable and release everything."""
        ...
