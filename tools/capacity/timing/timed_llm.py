"""The speech-token LLM that only takes time, behind the scheduler that serves: places, queue and
refusals are its own; prompts go in chunks, as in the fused engine.

Between two changes all rows advance together, so time goes from one message to the next instead of
from step to step.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from cosyserve.capacity.profile import CHUNK_POSITIONS
from cosyserve.spec import CHUNK_TOKENS
from services.llm.engine.scheduler import Limits, Scheduler, Sequence
from services.llm.gpu.stepper import MOST_CHUNKS
from tools.capacity.timing.device import Device
from tools.capacity.timing.pod_clock import PodClock

Deliver = Callable[[int, bool], None]
"""Gets how many tokens are new, and whether they are the last."""


class _Outbox:
    """What the scheduler asks of a sequence whose tokens go elsewhere."""

    started = False
    prefill_seconds = 0.0


@dataclass(eq=False)
class _Script:
    """What the scheduler asks of a script. ready: inputs that can run now."""

    ready: int


@dataclass(eq=False)
class Writing:
    """A sentence. left: tokens to make. message: tokens of the next message. prompt: positions that
    have not run.
    """

    left: int
    message: int
    deliver: Deliver
    prompt: int
    sequence: Sequence = field(init=False)
    unsent: int = 0

    @property
    def until_message(self) -> int:
        """Steps until there is something to send."""
        return min(self.left, self.message - self.unsent)

    def advance(self, steps: int) -> None:
        """So many tokens more, at most `until_message`."""
        self.left, self.unsent = self.left - steps, self.unsent + steps
        if self.unsent == self.message or not self.left:
            count, self.unsent, self.message = self.unsent, 0, CHUNK_TOKENS
            self.deliver(count, not self.left)


class TimedLlm:
    """limits: as the service's. busy_seconds: of its steps so far."""

    def __init__(self, clock: PodClock, device: Device, limits: Limits) -> None:
        self._clock, self._device = clock, device
        self.scheduler = Scheduler(limits)
        self.busy_seconds = 0.0
        self._writing: dict[Sequence, Writing] = {}
        self._prefilling: list[Writing] = []
        self._decoding: list[Writing] = []
        self._prevent: Callable[[], None] | None = None
        self._began, self._each, self._steps, self._chunks = 0.0, 0.0, 0, 0
        device.on_change.append(self._interrupt)

    def generate(self, tokens: int, first: int, prompt: int, deliver: Deliver) -> Writing:
        """Make `tokens` behind a prompt of so many positions; `deliver` gets the first `first`
        together, then 25 at a time. Raises Overloaded when the engine takes no more.
        """
        writing = Writing(tokens, first, deliver, prompt)
        bytes_ = (prompt + tokens) * self._device.profile.row_bytes
        writing.sequence = Sequence(cast("Any", _Script(prompt)), prompt + tokens, bytes_, cast("Any", _Outbox()))
        self.scheduler.add(writing.sequence)
        self._writing[writing.sequence] = writing
        self._interrupt()
        return writing

    def cancel(self, writing: Writing) -> None:
        """Make no more of it."""
        if self._writing.pop(writing.sequence, None) is None:
            return
        self.scheduler.remove(writing.sequence)
        for rows in (self._prefilling, self._decoding):
            if writing in rows:
                rows.remove(writing)
        self._interrupt()

    def stop(self) -> list[Writing]:
        """The process is gone; returns what was being written."""
        lost, self._writing = list(self._writing.values()), {}
        self._prefilling, self._decoding = [], []
        if self._prevent is not None:
            self._prevent()
            self._prevent = None
        self._device.writing = False
        return lost

    @property
    def sentences(self) -> int:
        """That run or wait."""
        return len(self._writing)

    def _interrupt(self) -> None:
        """Something changed: the present step is the last of its row."""
        if self._prevent is None:
            self._go_on()
            return
        if self._steps <= 1:
            return
        done = min(int((self._clock.now() - self._began) / self._each), self._steps - 1)
        self._prevent()
        self._advance(done)
        self._began += done * self._each
        self._steps = 1
        self._prevent = self._clock.after(self._began + self._each - self._clock.now(), self._stepped)

    def _go_on(self) -> None:
        """Begin the next steps, if there is something to run."""
        self._schedule()
        self._chunks = self._prefill()
        rows, profile = len(self._decoding), self._device.profile
        self._device.writing = bool(rows or self._chunks)
        if not self._device.writing:
            return
        prompts = self._chunks * profile.prefill
        self._steps = 1 if self._prefilling or prompts else min(one.until_message for one in self._decoding)
        seconds = self._device.varied(profile.decode_step(rows) if rows else 0.0) + prompts
        self._each = seconds * (profile.contention.decode if self._device.decoding else 1.0)
        self._began = self._clock.now()
        self._prevent = self._clock.after(self._steps * self._each, self._stepped)

    def _stepped(self) -> None:
        self._prevent = None
        self._advance(self._steps)
        if self._prevent is None:  # a message may have led to a new sentence
            self._go_on()

    def _advance(self, steps: int) -> None:
        if not steps:
            return
        self.busy_seconds += steps * self._each
        for one in list(self._decoding):
            one.advance(steps)
            if not one.left and one in self._decoding:
                self._decoding.remove(one)
                self._writing.pop(one.sequence, None)
                self.scheduler.remove(one.sequence)

    def _schedule(self) -> None:
        """Places for those that wait, when something has changed."""
        if not self.scheduler.changed:
            return
        self.scheduler.changed = False
        for sequence in self.scheduler.scheduled():
            if not sequence.in_flight:
                sequence.in_flight = True
                self._prefilling.append(self._writing[sequence])

    def _prefill(self) -> int:
        """Run prompts, first come first served; returns the number of chunks."""
        free = MOST_CHUNKS * CHUNK_POSITIONS
        used = 0
        for one in self._prefilling:
            part = min(one.prompt, free - used)
            one.prompt, used = one.prompt - part, used + part
        ready = [one for one in self._prefilling if not one.prompt]
        self._prefilling = [one for one in self._prefilling if one.prompt]
        for one in ready:
            one.sequence.script.ready = 1  # type: ignore[misc]
        self._decoding += ready
        return -(-used // CHUNK_POSITIONS)
