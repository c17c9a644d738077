"""The sequences of the engine, and which of them run next. No threads: the engine calls it with its
lock held.

A sequence with inputs to run waits until a place in the batch and its memory are free, first come
first served. Each step then runs at most one sequence with several pending inputs (a prompt, or a
block of text), the one that has had its place longest, and one input of every other sequence that
has a place. A sequence that waits for text has no place, but keeps its memory if it has begun. When
text arrives it takes the next free place, before sequences that have not begun, since it holds
memory that they may need.
"""

import math
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from cosyserve.errors import Overloaded
from cosyserve.metrics.hang_up import HangUp, of_call
from services.llm.engine.kv_cache import SequenceCache
from services.llm.generation.interleaved_text import ArrivingText
from services.llm.generation.outbox import Outbox
from services.llm.generation.script import Script


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
    since: float = field(default_factory=time.monotonic)
    """When it could first have run, in seconds of the monotonic clock."""
    hang_up: HangUp = field(default_factory=lambda: of_call().hold())
    """Of the call of this sentence; it holds its place until `let_go`."""
    held: bool = True
    deadline: float | None = None
    """When its caller gives up, on the monotonic clock; None: never."""

    def __post_init__(self) -> None:
        self.text_arrives = self.parked = self.script.ready == 0

    def take_arrivals(self) -> None:
        """Pass the text that arrived to the script."""
        while self.arrivals:
            assert isinstance(self.script, ArrivingText)  # noqa: S101
            piece = self.arrivals.popleft()
            if piece is None:
                self.script.end()
            else:
                self.script.feed(piece)

    def let_go(self) -> None:
        """Its place is free and no pass of it runs any more."""
        if self.held:
            self.held = False
            self.hang_up.release()

    def close(self) -> None:
        """Run no further step and free the slot."""
        self.closed = True
        self.cache = None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the engine accepts at most."""

    running: int
    """Sequences that run in the same step."""
    waiting: int
    """Sequences accepted beyond that; one more is refused. `running + waiting` is also the limit
    for open text streams.
    """
    kv_bytes: int | None = None
    """Bytes of keys and values of all sequences that have begun; None: limited only by the number
    of sequences.
    """
    retry_after: float = 1.0
    """Retry hint for a refused caller, in seconds."""


@dataclass(frozen=True)
class Step:
    """The sequences of one step of the engine."""

    extend: Sequence | None
    """Has several pending inputs; runs by itself."""
    decode: list[Sequence]
    """Have one pending input each; run together."""


@dataclass
class Scheduler:
    """The accepted sequences. `waiting`: not begun, without a slot. `running`: have a slot; of
    those that do not wait for text, the first `limits.running` have a place. Not thread-safe.
    Source of the policy: iteration-level scheduling, Orca (Yu et al., 2022)."""

    limits: Limits
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)
    changed: bool = True
    """Set when a sequence is added, removed or receives text; cleared by the step runner."""
    shortest_prefill: float = 0.0
    """Seconds of the shortest first pass of a sequence so far: with less time left, one that has
    not begun gives nothing to its caller.
    """
    _look_at: float = math.inf
    """When the next sequence may be late, on the monotonic clock."""

    @property
    def reserved_bytes(self) -> int:
        """Key-value memory of the sequences that have begun."""
        return sum(sequence.reserved_bytes for sequence in self.running)

    @property
    def oldest(self) -> float:
        """Seconds for which the first of those that wait for a place has waited; 0: none waits."""
        now = time.monotonic()
        return max((now - sequence.since for sequence in self.waiting if not sequence.parked), default=0.0)

    @property
    def parked(self) -> int:
        """Number of sequences that wait for text, begun or not."""
        return sum(sequence.parked for sequence in self._all)

    def add(self, sequence: Sequence) -> None:
        """Append a sequence. Raises Overloaded with a retry hint when the limit of sequences or of
        open text streams is reached.
        """
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
            self._look_at = min(self._look_at, self._late_at(sequence))
            return
        raise Overloaded(f"the speech-token engine {full}, no more are accepted", retry_after=self.limits.retry_after)

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence and free its slot; does nothing when it has been removed already."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        if (prefill := sequence.outbox.prefill_seconds) and not sequence.closed:
            self.shortest_prefill = min(self.shortest_prefill or prefill, prefill)
        sequence.close()
        self.changed = True

    def late(self, now: float) -> list[Sequence]:
        """The sequences whose deadline has passed or, of those that have not begun, will pass
        before their first pass is over.
        """
        if now < self._look_at:
            return []
        late = [sequence for sequence in self._all if self._late_at(sequence) <= now]
        self._look_at = min((self._late_at(one) for one in self._all if one not in late), default=math.inf)
        return late

    def _late_at(self, sequence: Sequence) -> float:
        if sequence.deadline is None:
            return math.inf
        return sequence.deadline - (0.0 if sequence.outbox.started else self.shortest_prefill)

    def next(self) -> Step | None:
        """The next step; None when nothing can run until text or a sequence arrives or a place is
        freed.
        """
        scheduled = self.scheduled()
        extend = next((sequence for sequence in scheduled if sequence.script.ready > 1), None)
        decode = [sequence for sequence in scheduled if sequence.script.ready == 1]
        return Step(extend, decode) if extend or decode else None

    def scheduled(self) -> list[Sequence]:
        """The sequences that have a place now, after passing arrived text to the scripts and
        assigning free places.
        """
        self._deliver_text()
        self._admit()
        return list(islice((sequence for sequence in self.running if not sequence.parked), self.limits.running))

    @property
    def _all(self) -> list[Sequence]:
        return [*self.running, *self.waiting]

    def _deliver_text(self) -> None:
        """Pass arrived text to the scripts. A sequence that wakes up is queued after those that
        run.
        """
        woken = []
        for sequence in self._all:
            sequence.take_arrivals()
            parked = not sequence.in_flight and sequence.script.ready == 0
            if sequence.parked and not parked:
                sequence.since = time.monotonic()
                if sequence in self.running:
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
