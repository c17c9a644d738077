"""The traveller: one sentence on its way through the engine."""

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.outbox import Outbox
from services.llm.generation.script import Script


class TextScript(Script, Protocol):
    """A script whose text arrives over time."""

    def feed(self, ids: list[int]) -> None:
        """More text ids."""
        ...

    def end(self) -> None:
        """The text is complete."""
        ...


@dataclass(eq=False)
class Sequence:
    """Script, slot and outbox of one sentence. The script is touched by the engine's thread alone;
    text waits in `arrivals` for it.
    """

    script: Script
    capacity: int
    """Positions it may come to."""
    reserved_bytes: int
    """Memory that is kept for it: of all its positions, or of as many as it has grown to
    (`StepRunner.grows`).
    """
    outbox: Outbox
    cache: SequenceCache | None = None
    """Made by the engine with the first pass, dropped when the sequence is closed."""
    arrivals: deque[list[int] | None] = field(default_factory=deque)
    """Pieces of text not yet shown to the script; None is the end of the text."""
    text_arrives: bool = field(init=False)
    """Its text comes over time: it began with nothing to run."""
    parked: bool = field(init=False)
    """Nothing to run until text arrives, as of the latest look at the schedule."""
    closed: bool = False
    in_flight: bool = False
    """Inputs were taken and a decision is due."""

    def __post_init__(self) -> None:
        self.text_arrives = self.parked = self.script.ready == 0

    @property
    def idle(self) -> bool:
        """Nothing runs and nothing can."""
        return not self.in_flight and self.script.ready == 0

    def take_arrivals(self) -> None:
        """Show the script what arrived."""
        while self.arrivals:
            script: TextScript = self.script  # type: ignore[assignment]  # only sequences with such a script are fed
            piece = self.arrivals.popleft()
            if piece is None:
                script.end()
            else:
                script.feed(piece)

    def close(self) -> None:
        """No further step; the slot is free from now on."""
        self.closed = True
        self.cache = None
