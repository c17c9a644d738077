"""The interface between the service and the engine that generates its tokens."""

from collections.abc import AsyncGenerator
from typing import Protocol

from cosyserve.engines.identity import Identity
from services.llm.generation.config import LengthBounds
from services.llm.generation.request import Generation, Hop
from services.llm.guards.alignment import AlignmentTable


class Backend(Protocol):
    """An engine for speech tokens."""

    @property
    def identity(self) -> Identity: ...

    @property
    def text_vocabulary(self) -> int:
        """Text ids below it are legal."""
        ...

    @property
    def lengths(self) -> LengthBounds:
        """How many speech tokens a sentence can have."""
        ...

    @property
    def alignment(self) -> AlignmentTable | None:
        """Which tokens say which text id; None when the model directory does not tell."""
        ...

    def generate(self, generation: Generation) -> AsyncGenerator[Hop]:
        """The hops of one sentence. The first is empty and comes as soon as the sentence is
        accepted; during a replay an empty one comes each `grouping.rest` tokens that are taken as
        made; the last carries the outcome.

        Closing the generator, or cancelling who waits for it, stops the work and frees its memory.
        Raises Overloaded when full, InvalidRequest for a text that no sequence of this engine can
        hold, InternalFault when the engine fails.
        """
        ...

    async def warm_up(self) -> None:
        """Run once what a request runs."""
        ...

    async def close(self) -> None:
        """End all work with Unavailable and release everything."""
        ...
