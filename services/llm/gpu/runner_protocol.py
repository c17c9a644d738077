"""The device as the engine sees it."""

from collections.abc import Sequence
from typing import Protocol

from services.llm.gpu.layout import Stretch


class PendingDecisions(Protocol):
    """Decisions of a step that may still be running."""

    def read(self) -> list[int]:
        """One number for each slot of the step, see `state_table`. Waits for the device."""
        ...


class Runner(Protocol):
    """Runs on memory for a fixed number of slots and pages, one call after another."""

    page_bytes: int
    pages: int
    slots: int

    def row_of(self, table: int, row: int) -> int:
        """Row of the joined embedding table."""
        ...

    def assign(self, slot: int, pages: Sequence[int], replay: Sequence[int]) -> None:
        """A sequence takes a slot."""
        ...

    def extend(self, slot: int, first: int, pages: Sequence[int], capacity: int) -> None:
        """The sequence on this slot has more pages, behind `first` others, and may come to
        `capacity` positions from the next step on.
        """
        ...

    def prefill(self, stretches: Sequence[Stretch]) -> None:
        """Run a chunk."""
        ...

    def activate(self, slot: int, state: Sequence[int]) -> None:
        """From the next step on the slot decides by this row of the state table."""
        ...

    def step(self, slots: Sequence[int]) -> PendingDecisions:
        """One decode step of these slots."""
        ...

    def close(self) -> None:
        """Wait for the device: memory that it still writes to must not be given to others."""
        ...
