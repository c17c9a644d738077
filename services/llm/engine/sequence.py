"""One request being generated: its script, KV slot and outbox."""

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from services.llm.engine.kv_cache import SequenceCache
from services.llm.generation.outbox import Outbox
from services.llm.generation.script import Script


class TextScript(Script, Protocol):
    """A script whose text arrives over time."""

    def feed(self, ids: list[int]) -> None:
        """Add text ids."""
        ...

    def end(self) -> None:
        """Mark the text as complete."""
        ...


@dataclass(eq=False)
class Sequence:
    """Script, slot and outbox of one sentence. Only the engine's thread uses the script; text for
    it is queued in `arrivals`.
    """

    script: Script
    capacity: int
    """Most positions of the sequence."""
    reserved_bytes: int
    """Bytes reserved for its keys and values: for all its positions, or for those it has grown to
    (`StepRunner.grows`).
    """
    outbox: Outbox
    cache: SequenceCache | None = None
    """Allocated by the engine before the first pass, freed when the sequence is closed."""
    arrivals: deque[list[int] | None] = field(default_factory=deque)
    """Pieces of text not yet passed to the script; None is the end of the text."""
    text_arrives: bool = field(init=False)
    """Whether its text arrives over time: such a sequence begins with nothing to run."""
    parked: bool = field(init=False)
    """Whether it has nothing to run until text arrives, as of the latest scheduling."""
    closed: bool = False
    in_flight: bool = False
    """Whether inputs were taken and a decision is pending."""

    def __post_init__(self) -> None:
        self.text_arrives = self.parked = self.script.ready == 0

    @property
    def idle(self) -> bool:
        """Whether nothing is running and nothing is ready to run."""
        return not self.in_flight and self.script.ready == 0

    def take_arrivals(self) -> None:
        """Pass the text that arrived to the script."""
        while self.arrivals:
            script: TextScript = self.script  # type: ignore[assignment]  # only sequences with such a script are fed
            piece = self.arrivals.popleft()
            if piece is None:
                script.end()
            else:
                script.feed(piece)

    def close(self) -> None:
        """Run no further step and free the slot."""
        self.closed = True
        self.cache = None
