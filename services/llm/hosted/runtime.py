"""The interface between `HostedBackend` and a library that owns model, memory and batching:
TensorRT-LLM, vLLM.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.llm.hosted.run_sampler import RunSampler


@dataclass(frozen=True)
class Run:
    """inputs: ids of the extended vocabulary, all earlier inputs of the sequence and the new ones.
    sampler: makes every decision.
    """

    inputs: list[int]
    sampler: RunSampler

    @property
    def most(self) -> int:
        """Most decisions of the run."""
        return self.sampler.most


class Runtime(Protocol):
    """A loaded engine. All methods but `close` are called on the event loop."""

    def ids(self, run: Run) -> AsyncGenerator[list[int]]:
        """The ids that the sampler chooses, in order, as ids of the extended vocabulary. Ends after
        the id that ends the run, which may be omitted, or after `run.most` ids.

        Closing the generator aborts the run and frees its memory. May raise any exception; see
        `is_dead`.
        """
        ...

    @property
    def processes(self) -> Sequence[int]:
        """A file descriptor for each process that the engine needs, readable as soon as that
        process has ended; valid until `close` is called.
        """
        ...

    def is_dead(self, error: Exception) -> bool:
        """Whether an error of `ids` means that no later run can succeed."""
        ...

    def close(self) -> None:
        """End all work and release everything. Blocks. May raise any exception; our own resources
        are released in any case.
        """
        ...
