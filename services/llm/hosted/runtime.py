"""The seam between `HostedBackend` and a library that owns model, memory and batching:
TensorRT-LLM, vLLM.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.llm.hosted.run_sampler import RunSampler


@dataclass(frozen=True)
class Run:
    """inputs: ids of the extended vocabulary, all that the sequence has been fed and what is new.
    The sampler makes every decision.
    """

    inputs: list[int]
    sampler: RunSampler

    @property
    def most(self) -> int:
        """Decisions of the run at most."""
        return self.sampler.most


class Runtime(Protocol):
    """A loaded engine. All but `close` is called on the event loop."""

    def ids(self, run: Run) -> AsyncGenerator[list[int]]:
        """Ids of the extended vocabulary as they are made, those of the sampler in order; it is
        over behind the id that ends the run, which may be left out, or behind `run.most` of them.

        Closing it aborts the run and frees its memory. May raise anything; see `is_dead`.
        """
        ...

    @property
    def processes(self) -> Sequence[int]:
        """A file descriptor for each process that the engine cannot do without, readable as soon as
        that process has ended. They are valid until `close` is called."""
        ...

    def is_dead(self, error: Exception) -> bool:
        """Whether what `ids` raised says that no run will succeed any more."""
        ...

    def close(self) -> None:
        """End all work and release everything. Blocks. May raise anything, what is ours is released
        all the same.
        """
        ...
