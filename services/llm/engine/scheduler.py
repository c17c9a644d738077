"""Who runs next. Plain policy, no threads: the engine calls it under its lock.

A new sequence waits until a place and its whole key-value slot are free, first come first served. Each step then runs at most one sequence
with several pending inputs (a prompt, or a block of text), the one longest in the engine first, and one input of every other sequence that
has one. A sequence that waits for text keeps its place and is not stepped.
"""

from collections import deque
from dataclasses import dataclass, field

from cosyserve.errors import Overloaded
from services.llm.engine.sequence import Sequence


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the engine takes on."""

    running: int
    """Sequences that share the steps."""
    waiting: int
    """Sequences accepted beyond that; one more is refused."""
    kv_bytes: int | None = None
    """Memory for keys and values of all running sequences together; None: no limit but `running`."""
    retry_after: float = 1.0
    """Seconds that a refused caller is told to wait."""


@dataclass(frozen=True)
class Step:
    """One turn of the engine."""

    extend: Sequence | None
    """Has several pending inputs; runs on its own."""
    decode: list[Sequence]
    """Have one pending input each; run together."""


@dataclass
class Scheduler:
    limits: Limits
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)

    @property
    def reserved_bytes(self) -> int:
        """Key-value memory of the running sequences."""
        return sum(sequence.reserved_bytes for sequence in self.running)

    def add(self, sequence: Sequence) -> None:
        """Accept a sequence. Raises Overloaded when as many wait as may."""
        accepted = len(self.running) + len(self.waiting)
        if accepted >= self.limits.running + self.limits.waiting:
            raise Overloaded(
                f"the speech-token engine runs {len(self.running)} sentences and {len(self.waiting)} wait, no more are taken",
                retry_after=self.limits.retry_after,
            )
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence and free its slot; nothing happens when it is gone already."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        sequence.close()

    def next(self) -> Step | None:
        """The next step, or None when nothing can run."""
        self._admit()
        for sequence in self.running:
            sequence.take_arrivals()
            sequence.parked = sequence.script.ready == 0
        extend = next((sequence for sequence in self.running if sequence.script.ready > 1), None)
        decode = [sequence for sequence in self.running if sequence.script.ready == 1]
        return Step(extend, decode) if extend or decode else None

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.limits.running:
            wanted = self.reserved_bytes + self.waiting[0].reserved_bytes
            if self.limits.kv_bytes is not None and wanted > self.limits.kv_bytes and self.running:
                return
            self.running.append(self.waiting.popleft())
