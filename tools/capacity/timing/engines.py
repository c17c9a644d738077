"""Engines that only take time: what a GPU was seen to take, as a function of how much is asked of
it, on a clock of one's own.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cosyserve.errors import CosyserveError
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS, SAMPLES_PER_TOKEN
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.gpu.stream_state import BLOCKS_AT_ONCE
from services.token2wav.inputs.chunking import grid_blocks
from services.token2wav.inputs.request import Sentence, Voice
from tools.capacity.timing.clock import VirtualClock

HELD_BACK = COSYVOICE2.hold_back_tokens
"""Tokens that the vocoder keeps back: CosyVoice2's, as all times here are."""
_SOUND = np.full(SAMPLES_PER_TOKEN * CHUNK_TOKENS * BLOCKS_AT_ONCE, 0.1, np.float32)
"""Something audible; results are parts of it, so it cannot be written."""
_SOUND.setflags(write=False)


@dataclass(frozen=True)
class Times:
    """Seconds on a device that both engines share. flow, vocoder: a step of token2wav by its number
    of blocks. host: what a step takes besides the device. decode: a step of the speech-token model
    by its rows. prefill: a prompt. beside_decoding, beside_decoder: how many times longer token2wav
    and the speech-token model take while the other one works, so that loads come out as they were
    measured over gRPC; of one sentence a pass was seen to take 1.2 times and a step 1.5. jitter:
    see `varied`; seed: of its dice."""

    flow: dict[int, float] = field(
        default_factory=lambda: {1: 0.0106, 2: 0.0127, 4: 0.0166, 8: 0.0229, 16: 0.0301, 32: 0.0458}
    )
    vocoder: dict[int, float] = field(
        default_factory=lambda: {1: 0.00055, 2: 0.00075, 4: 0.00095, 8: 0.0014, 16: 0.0024, 32: 0.0045}
    )
    host: float = 0.002
    decode: dict[int, float] = field(
        default_factory=lambda: {
            1: 0.00056,
            2: 0.0006,
            4: 0.00061,
            8: 0.00063,
            16: 0.0007,
            32: 0.0008,
            64: 0.00093,
            128: 0.0012,
        }
    )
    prefill: float = 0.0011
    beside_decoding: float = 1.2
    beside_decoder: float = 1.6
    jitter: float = 0.1
    seed: int = 0

    @classmethod
    def of_two_cores(cls, jitter: float = 0.1, seed: int = 0) -> "Times":
        """The bundled voice on a CPU, one stream in a step and one row after the other."""
        rows = {count: 0.002 * count for count in (1, 2, 3, 4, 5, 6, 8, 16)}
        return cls(
            {1: 0.075},
            {1: 0.035},
            0.002,
            rows,
            prefill=0.015,
            beside_decoding=1.15,
            beside_decoder=1.15,
            jitter=jitter,
            seed=seed,
        )

    def varied(self, seconds: float, dice: random.Random) -> float:
        """As it comes: never sooner, and later by `jitter` of it on average."""
        return seconds * (1.0 + self.jitter * dice.expovariate(1.0))


@dataclass(eq=False)
class ModelledState:
    """A stream whose prompt was kept."""

    prompt: int
    position: int
    samples: int = 0
    prompt_cached: bool = True
    bytes: int = 0
    recomputing: bool = False

    def reach(self, end: int) -> int:
        """As the paged engine."""
        return min((self.position // CHUNK_TOKENS + BLOCKS_AT_ONCE) * CHUNK_TOKENS, end)

    def early(self, tokens: int) -> int:
        """Nothing is left to do inside the prompt."""
        return 0

    def cancel(self) -> None:
        """No caller hangs up."""


class ModelledDecoder:
    """token2wav. busy: whether the speech-token model works now."""

    goes_on_without_room = True
    takes_fewer_steps = False
    token_bytes = 0

    def __init__(self, clock: VirtualClock, times: Times, busy: Callable[[], bool], widest_step: int = 32) -> None:
        self.widest_step = widest_step
        self.widths: list[int] = []
        self.working = False
        self.seconds = 0.0
        self._clock, self._times, self._busy, self._dice = clock, times, busy, random.Random(times.seed)

    def start_bytes(self, voice: Voice) -> int:
        """No memory."""
        return 0

    def start(self, sentence: Sentence) -> ModelledState:
        """Behind the last border inside the prompt."""
        prompt = len(sentence.voice.tokens)
        return ModelledState(prompt, (prompt - LOOKAHEAD_TOKENS) // CHUNK_TOKENS * CHUNK_TOKENS)

    def step(self, strides: Sequence[StepInput[ModelledState]]) -> list[Decoded | CosyserveError | None]:
        """Something audible of the right length, after the right time."""
        each = [grid_blocks(stride.state.position, stride.until) for stride in strides]
        blocks = sum(each)
        # One window of each stream at a time: a later one goes on from the phase of the one before.
        windows = [sum(count > at for count in each) for at in range(max(each))]
        seconds = (
            self._times.host
            + at_most(self._times.flow, blocks)
            + sum(at_most(self._times.vocoder, count) for count in windows)
        )
        seconds = self._times.varied(seconds, self._dice) * (self._times.beside_decoding if self._busy() else 1.0)
        self.working = True
        self._clock.work(seconds)
        self.working = False
        self.widths.append(blocks)
        self.seconds += seconds
        return [hum(stride) for stride in strides]


class ModelledLlm:
    """All sequences step together; prompts go first, one to a step. busy: whether token2wav works
    now.
    """

    def __init__(self, clock: VirtualClock, times: Times, busy: Callable[[], bool]) -> None:
        self._clock, self._times, self._busy, self._dice = clock, times, busy, random.Random(times.seed + 1)
        self._waiting: list[_Sequence] = []
        self._running: list[_Sequence] = []
        self.working = False

    def generate(self, tokens: int, first: int, deliver: Callable[[int, bool], None]) -> None:
        """Make `tokens`; `deliver` gets how many are new, the first `first` together, then 25 at a
        time, and whether they are the last.
        """
        self._waiting.append(_Sequence(tokens, first, deliver))
        if not self.working:
            self._go_on()

    def _go_on(self) -> None:
        self.working = bool(self._waiting or self._running)
        if not self.working:
            return
        seconds = 0.0
        if self._waiting:
            self._running.append(self._waiting.pop(0))
            seconds += self._times.prefill
        seconds += at_most(self._times.decode, len(self._running))
        seconds = self._times.varied(seconds, self._dice)
        self._clock.after(seconds * (self._times.beside_decoder if self._busy() else 1.0), self._stepped)

    def _stepped(self) -> None:
        for sequence in self._running:
            sequence.one_more()
        self._running = [sequence for sequence in self._running if sequence.left]
        self._go_on()


@dataclass(eq=False)
class _Sequence:
    left: int
    message: int
    deliver: Callable[[int, bool], None]
    unsent: int = 0

    def one_more(self) -> None:
        self.left, self.unsent = self.left - 1, self.unsent + 1
        if self.unsent == self.message or not self.left:
            count, self.unsent, self.message = self.unsent, 0, CHUNK_TOKENS
            self.deliver(count, not self.left)


def at_most(times: dict[int, float], size: int) -> float:
    """The time of the smallest batch that holds `size`; beyond the largest, as many of those as it
    takes.
    """
    fitting = [batch for batch in times if batch >= size]
    return times[min(fitting)] if fitting else times[max(times)] * -(-size // max(times))


def hum(stride: StepInput[Any]) -> Decoded:
    """What a step gives a modelled stream, `ModelledState` or alike: something audible of the right
    length.
    """
    state, work = stride.state, stride.until - stride.state.position
    spoken = max(stride.until - state.prompt - (0 if stride.final else HELD_BACK), 0)
    new, state.position = max(SAMPLES_PER_TOKEN * spoken - state.samples, 0), stride.until
    state.samples += new
    samples = _SOUND[:new] if new <= _SOUND.size else np.full(new, _SOUND[0], np.float32)
    return Decoded(samples, work, 2 * work, (0, 0), (0, 0))
