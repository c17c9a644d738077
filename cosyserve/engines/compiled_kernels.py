"""Which kernels a start compiled, and which the cache had, as a line of the log."""

import collections
import contextlib
import logging
from collections.abc import Iterator
from typing import Any

log = logging.getLogger(__name__)
_NAMED = 8
"""Names of compiled kernels in the line."""


class KernelCount:
    """A listener of Triton's compiler (`triton.knobs.CompilationListener`).

    cached: how many kernels the cache had. compiled: how often each kernel was compiled, by name: a
    kernel of other constants is another one. seconds: that compiling took.
    """

    def __init__(self) -> None:
        self.cached, self.seconds = 0, 0.0
        self.compiled: collections.Counter[str] = collections.Counter()

    def __call__(self, *, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool) -> None:
        if cache_hit:
            self.cached += 1
            return
        self.compiled[str(metadata.get("name", ""))] += 1
        self.seconds += times.total / 1e6

    def __str__(self) -> str:
        if not (count := self.compiled.total()):
            return f"{self.cached} from the cache, none compiled"
        names = ", ".join(f"{name} {times}" for name, times in self.compiled.most_common(_NAMED))
        more = ", ..." if len(self.compiled) > _NAMED else ""
        return f"{self.cached} from the cache, {count} compiled in {self.seconds:.1f} s ({names}{more})"


@contextlib.contextmanager
def counted_kernels(kernels: str) -> Iterator[KernelCount]:
    """Context in which kernels are launched for the first time; at its end the count is logged.
    kernels: what they are. Raises ImportError without Triton.
    """
    from triton import knobs

    before, count = knobs.compilation.listener, KernelCount()
    knobs.compilation.listener = count
    try:
        yield count
    finally:
        knobs.compilation.listener = before
        log.info("start: %s: %s", kernels, count)
