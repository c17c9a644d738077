"""Who runs next. Plain policy, no threads: the engine calls it under its lock.

A sequence with something to run waits until a place and the memory reserved for it are free, first
come first served. Each step then runs at most one sequence with several pending inputs (a prompt,
or a block of text), the one longest in its place first, and one input of every other sequence that
has a place. A sequence that waits for text has no place, but keeps its memory if it has begun. When
text arrives it takes the next place that is free, before those that have not begun: it holds the
memory that they may be waiting for.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from cosyserve.errors import Overloaded
from services.llm.engine.sequence import Sequence


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the engine takes on."""

    running: int
    """Sequences that share the steps."""
    waiting: int
    """Sequences accepted beyond that; one more is refused. As many text streams as both together
    may be open, whatever they wait for.
    """
    kv_bytes: int | None = None
    """Memory for keys and values of all sequences that have begun, together; None: no limit but the
    number of sequences.
    """
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
    """The sequences that are in. `waiting`: not begun, without a slot. `running`: have a slot, and
    of those that do not wait for text the first `limits.running` have a place. Not thread-safe.
    Source of the policy: iteration-level scheduling, Orca (Yu et al., 2022)."""

    limits: Limits
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)
    changed: bool = True
    """Somebody came, left or got text since this was last set to False."""

    @property
    def reserved_bytes(self) -> int:
        """Key-value memory of the sequences that have begun."""
        return sum(sequence.reserved_bytes for sequence in self.running)

    @property
    def parked(self) -> int:
        """Sequences that wait for text, begun or not."""
        return sum(sequence.parked for sequence in self._all)

    def add(self, sequence: Sequence) -> None:
        """Accept a sequence behind all others. Raises Overloaded, with the hint when to come back,
        when as many wait as may or as many text streams are open as may."""
        most = self.limits.running + self.limits.waiting
        running, waiting = (sum(not other.parked for other in others) for others in (self.running, self.waiting))
        streams = sum(other.text_arrives for other in self._all)
        if running + waiting >= most:
            full = f"runs {running} sentences and {waiting} wait"
        elif sequence.text_arrives and streams >= most:
            full = f"has {streams} text streams open"
        else:
            self.waiting.append(sequence)
            self.changed = True
            return
        raise Overloaded(f"the speech-token engine {full}, no more are taken", retry_after=self.limits.retry_after)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence and free its slot; nothing happens when it is gone already."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        sequence.close()
        self.changed = True

    def next(self) -> Step | None:
        """The next step, or None when nothing can run before text, a new sequence or a free place
        comes.
        """
        placed = self.scheduled()
        extend = next((sequence for sequence in placed if sequence.script.ready > 1), None)
        decode = [sequence for sequence in placed if sequence.script.ready == 1]
        return Step(extend, decode) if extend or decode else None

    def scheduled(self) -> list[Sequence]:
        """Who has a place now: shows the scripts what text arrived, and gives free places away."""
        self._look_for_text()
        self._admit()
        return list(islice((sequence for sequence in self.running if not sequence.parked), self.limits.running))

    @property
    def _all(self) -> list[Sequence]:
        return [*self.running, *self.waiting]

    def _look_for_text(self) -> None:
        """Show the scripts what arrived. Who wakes up stands behind those that run."""
        woken = []
        for sequence in self._all:
            sequence.take_arrivals()
            parked = sequence.idle
            if sequence.parked and not parked and sequence in self.running:
                woken.append(sequence)
            sequence.parked = parked
        self.running = [sequence for sequence in self.running if sequence not in woken] + woken

    def _admit(self) -> None:
        places = self.limits.running - sum(not sequence.parked for sequence in self.running)
        for sequence in [sequence for sequence in self.waiting if not sequence.parked][: max(0, places)]:
            wanted = self.reserved_bytes + sequence.reserved_bytes
            if self.limits.kv_bytes is not None and wanted > self.limits.kv_bytes and self.running:
                return
            self.waiting.remove(sequence)
            self.running.append(sequence)
