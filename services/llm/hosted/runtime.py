"""The interface between `HostedBackend` and a library that owns model, memory and batching:
TensorRT-LLM, vLLM. Also the detection of its processes that end: the library starts them while it
loads, and one may die while no run is in the engine.
"""

import abc
import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from multiprocessing import active_children
from typing import Any, TypeVar

from services.llm.hosted.run_sampler import RunSampler

T = TypeVar("T")


class Runtime(abc.ABC):
    """A loaded engine. All methods but `close` are called on the event loop. engine: the library's
    own object, with a method `shutdown`. release: releases what we hold for it.
    """

    processes: Sequence[int] = ()
    """A file descriptor for each process that the engine needs, readable as soon as that process
    has ended; valid until `close` is called.
    """

    def __init__(self, engine: Any, release: Callable[[], None]) -> None:
        self._engine, self._release = engine, release

    @abc.abstractmethod
    def ids(self, inputs: list[int], sampler: RunSampler) -> AsyncGenerator[list[int]]:
        """One run: the ids that the sampler chooses, in order, as ids of the extended vocabulary.
        Ends after the id that ends the run, which may be omitted, or after `sampler.most` ids.

        inputs: ids of the extended vocabulary, all earlier inputs of the sequence and the new ones.
        Closing the generator aborts the run and frees its memory. May raise any exception; see
        `is_dead`.
        """

    def is_dead(self, error: Exception) -> bool:
        """Whether an error of `ids` means that no later run can succeed."""
        return False

    def close(self) -> None:
        """End all work and release everything. Blocks. May raise any exception; our own resources
        are released in any case.
        """
        try:
            self._engine.shutdown()
        finally:
            self._release()


def require_whole_run(reason: object, received: int, most: int) -> None:
    """Raises RuntimeError unless a run ended by itself, or at its limit of `most` ids. reason: as
    the library reports it.
    """
    if reason not in ("stop", "length") or (reason == "length" and received < most):
        raise RuntimeError(f"the run ended by {reason} after {received} of {most} ids")


def load_with_processes(load: Callable[[], T]) -> tuple[T, tuple[int, ...]]:
    """The result of `load`, and the sentinels of the processes that it has started by
    `multiprocessing` and that are still alive: file descriptors that become readable when their
    process ends. Raises what `load` raises.
    """
    before = set(active_children())
    return load(), tuple(process.sentinel for process in active_children() if process not in before)


class ProcessWatch:
    """Calls `on_end` on the event loop, once, as soon as one of the processes has ended. Create and
    stop it on the event loop.

    sentinels: duplicated here, since the library closes its own when it shuts down.
    """

    def __init__(self, sentinels: Iterable[int], on_end: Callable[[], None]) -> None:
        self._loop, self._on_end = asyncio.get_running_loop(), on_end
        self._watched: list[int] = []
        for sentinel in sentinels:
            descriptor = os.dup(sentinel)
            self._watched.append(descriptor)
            self._loop.add_reader(descriptor, self._ended)

    def stop(self) -> None:
        """Stop watching. Further calls do nothing."""
        while self._watched:
            descriptor = self._watched.pop()
            self._loop.remove_reader(descriptor)
            os.close(descriptor)

    def _ended(self) -> None:
        self.stop()
        self._on_end()
