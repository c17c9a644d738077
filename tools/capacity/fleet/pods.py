"""One pod of each kind: the scheduling code that serves, on the virtual clock."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cosyserve.spec import MEL_BINS, SPEAKER_DIMENSION
from services.llm.engine.scheduler import Limits as LlmLimits
from services.orchestrator.load_control.adaptive_limit import LEAST_SECONDS, AdaptiveLimit, StageLoad
from services.orchestrator.load_control.admission import Admission
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.scheduling.hop_audio import Deliver
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.scheduling.stream_slot import StreamSlot
from tools.capacity.fleet.layout import FleetLayout
from tools.capacity.timing.device import Device
from tools.capacity.timing.driven_batcher import DrivenBatcher
from tools.capacity.timing.paged_decoder import TimedPagedDecoder
from tools.capacity.timing.pod_clock import PodClock
from tools.capacity.timing.timed_llm import TimedLlm

if TYPE_CHECKING:
    from collections.abc import Sequence

SOON_DRY_SECONDS = 0.1
"""A player with less than this left counts as about to run dry."""


class User(Protocol):
    """Something that a pod works for."""

    def lost(self, pod: "Pod") -> None:
        """The pod is gone."""


class Pod:
    """serving: whether it may get new work. draining: it ends with its last piece of work. users:
    what it works for, in the order in which it came.
    """

    def __init__(self, stage: str, number: int) -> None:
        self.stage, self.number = stage, number
        self.serving = self.draining = self.gone = False
        self.users: dict[User, None] = {}

    @property
    def streams(self) -> int:
        """Pieces of work at present."""
        return len(self.users)

    def end(self) -> None:
        """The process is over; its users learn of it."""
        self.serving, self.gone = False, True
        users, self.users = list(self.users), {}
        for user in users:
            user.lost(self)


class HostPod(Pod):
    """A service without a GPU: one core, on which work waits in turn."""

    def __init__(self, stage: str, number: int, clock: PodClock) -> None:
        super().__init__(stage, number)
        self._clock, self._free_at = clock, 0.0
        self.busy_seconds = 0.0

    def serve(self, seconds: float) -> float:
        """Take up work of so many seconds; returns after how many it is done."""
        now = self._clock.now()
        self._free_at = max(self._free_at, now) + seconds
        self.busy_seconds += seconds
        return self._free_at - now


class OrchestratorPod(HostPod):
    """With the admission that serves. loads: what the engines measure."""

    def __init__(
        self, number: int, clock: PodClock, layout: FleetLayout, loads: "Callable[[], Sequence[StageLoad]]"
    ) -> None:
        super().__init__("orchestrator", number, clock)
        self.admission = Admission(layout.orchestrator_streams, now=clock.now)
        self._limit = AdaptiveLimit(layout.orchestrator_streams) if layout.adaptive else None
        self._loads, self._asked_at, self._most = loads, 0.0, 0
        if self._limit is not None:
            self.admission.changed = self._update

    def _update(self) -> None:
        """As `LimitUpdater`: at most one round a second, and only when something changes."""
        self._most, now = max(self._most, self.admission.active), self._clock.now()
        if self._limit is not None and now - self._asked_at >= LEAST_SECONDS:
            most, self._most, self._asked_at = self._most, self.admission.active, now
            self.admission.limit = self._limit.of(self._loads(), most, now)


class LlmPod(Pod):
    """With the scheduler that serves."""

    def __init__(self, number: int, clock: PodClock, device: Device, layout: FleetLayout) -> None:
        super().__init__("llm", number)
        limits = LlmLimits(running=layout.llm_slots, waiting=layout.llm_waiting)
        self.slots, self.engine = layout.llm_slots, TimedLlm(clock, device, limits)

    def end(self) -> None:
        self.engine.stop()
        super().end()


class Token2wavPod(Pod):
    """With the batcher that serves."""

    def __init__(self, number: int, clock: PodClock, device: Device, layout: FleetLayout) -> None:
        super().__init__("token2wav", number)
        self.device = device
        self.decoder = TimedPagedDecoder(
            clock, device, layout.pages, layout.widest_step, lambda: self.batcher.stats().streams
        )
        limits = Limits(
            max_streams=layout.token2wav_streams,
            state_bytes=layout.pages * device.profile.block_bytes,
            reserve_tokens=layout.reserve_tokens,
        )
        self.fault = ""
        self._clock, self.driven = clock, DrivenBatcher(clock, self.decoder, limits, self._broke)
        self.batcher = self.driven.batcher

    def open(self, sentence: Sentence, deliver: Deliver) -> StreamSlot:
        """As `Batcher.open`."""
        slot = self.batcher.open(sentence, deliver)
        self.driven.wake()
        return slot

    def feed(self, slot: StreamSlot, tokens: int, *, last: bool) -> None:
        """So many tokens more."""
        self.batcher.feed(slot, np.zeros(tokens, np.int64))
        if last:
            self.batcher.finish(slot)
        self.driven.wake()

    def taken(self, slot: StreamSlot) -> None:
        """The reader has one more hop."""
        self.batcher.taken(slot)
        self.driven.wake()

    def cancel(self, slot: StreamSlot) -> None:
        """The caller is gone."""
        self.batcher.cancel(slot)
        self.driven.wake()

    @property
    def pages_used(self) -> int:
        """Of the pool."""
        return self.decoder.pool.count - self.decoder.pool.free

    def about_to_run_dry(self) -> float:
        """Share of the playing streams whose player has little left: one less the slack ratio."""
        now = self._clock.now()
        playing = [slot.plays_until - now for slot in self.batcher._slots if slot.is_playing and not slot.is_decoded]
        return sum(left < SOON_DRY_SECONDS for left in playing) / len(playing) if playing else 0.0

    def end(self) -> None:
        self.driven.stop()
        super().end()

    def _broke(self, reason: str) -> None:
        self.fault = reason


def voice(prompt_tokens: int) -> Voice:
    """One whose prompt has so many tokens."""
    mel = np.zeros((2 * prompt_tokens, MEL_BINS), np.float32)
    return Voice(np.zeros(prompt_tokens, np.int64), mel, np.zeros(SPEAKER_DIMENSION, np.float32))
