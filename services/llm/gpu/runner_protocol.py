"""The interface between the engine and the device."""

from collections.abc import Sequence
from typing import Protocol

from services.llm.gpu.layout import Stretch


class PendingDecisions(Protocol):
    """Decisions of a step that may still be running."""

    def read(self) -> list[int]:
        """Wait for the device and return one decision for each slot of the step, see
        `state_table`.
        """
        ...


class Runner(Protocol):
    """Runs calls in order, on memory for a fixed number of slots and pages."""

    page_bytes: int
    pages: int
    slots: int

    def row_of(self, table: int, row: int) -> int:
        """Index in the joined embedding table of row `row` of table `table`."""
        ...

    def assign(self, slot: int, pages: Sequence[int], replay: Sequence[int]) -> None:
        """Assign a slot to a new sequence."""
        ...

    def extend(self, slot: int, first: int, pages: Sequence[int], capacity: int) -> None:
        """Add pages to the sequence of this slot, after its `first` pages; from the next step on it
        may have `capacity` positions.
        """
        ...

    def prefill(self, stretches: Sequence[Stretch]) -> None:
        """Run a prefill chunk."""
        ...

    def activate(self, slot: int, state: Sequence[int]) -> None:
        """Write the state row of a slot, by which it decodes from the next step on."""
        ...

    def step(self, slots: Sequence[int]) -> PendingDecisions:
        """Run one decode step of these slots."""
        ...

    def close(self) -> None:
        """Wait for the device: memory that it still writes to must not be freed."""
        ...
