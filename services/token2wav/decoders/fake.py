"""A decoder without a model: each token is a tone. For development, tests and load tests of
everything around the engine.

It has the properties of the real decoder: the same cuts, the same lengths at every speed, and
samples that depend only on the request. It needs no tensor library.
"""

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cosyserve import philox
from cosyserve.engines.compatibility import Identity
from cosyserve.errors import CosyserveError
from cosyserve.spec import (
    EULER_STEPS,
    MEL_FRAMES_PER_TOKEN,
    SAMPLE_RATE,
    SAMPLES_PER_MEL_FRAME,
    SAMPLES_PER_TOKEN,
    SPEECH_VOCABULARY,
)
from services.token2wav.decoders.backend import Backend
from services.token2wav.decoders.interface import Decoded, SingleStreamDecoder, StepInput
from services.token2wav.inputs.chunking import next_border
from services.token2wav.inputs.request import Profile, Sentence, Voice

MOST_HELD_BACK_TOKENS = 8
"""Tokens whose samples a step holds back unless it is the last one, where the vocoder of the model
holds back as many or more.
"""


@dataclass(eq=False)
class FakeState:
    """position counts the prompt; samples is the number of samples returned so far."""

    sentence: Sentence
    position: int = 0
    samples: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)
    prompt_cached: None = None
    recomputing: bool = False

    @property
    def bytes(self) -> int:
        """Simulated memory: one kibibyte, plus one for each token."""
        return 1024 * (1 + self.position)

    def reach(self, end: int) -> int:
        """One grid block in the continuous profile, the hop in the others."""
        return next_border(self.position, end) if self.sentence.profile is Profile.CONTINUOUS else end

    def early(self, tokens: int) -> int:
        """Nothing is computed early."""
        return 0

    def cancel(self) -> None:
        """Interrupts the step that simulates work. May be called from any thread."""
        self.cancelled.set()


class FakeDecoder(SingleStreamDecoder):
    """token_seconds: simulated seconds per token, interrupted when the stream is cancelled. fault,
    share: see `EngineSettings`. hold_back_tokens: of the model's generation.
    """

    token_bytes = 1024
    takes_fewer_steps = True

    def __init__(
        self,
        token_seconds: float = 0.0,
        fault: str = "",
        share: float = 1.0,
        hold_back_tokens: int = MOST_HELD_BACK_TOKENS,
    ) -> None:
        self.steps = 0
        self._held_back = SAMPLES_PER_TOKEN * min(hold_back_tokens, MOST_HELD_BACK_TOKENS)
        self._token_seconds, self._fault, self._share = token_seconds, fault, share

    def start(self, sentence: Sentence) -> FakeState:
        """A stream at the first prompt token."""
        return FakeState(sentence)

    def step(self, step_inputs: Sequence[StepInput[FakeState]]) -> list[Decoded | CosyserveError | None]:
        """One step of each stream, one after the other; see `Decoder.step`."""
        return [self._step(step_input) for step_input in step_inputs]

    def start_bytes(self, voice: Voice) -> int:
        """Simulated memory for the prompt."""
        return 1024 * (1 + len(voice.tokens))

    def _step(self, step_input: StepInput[FakeState]) -> Decoded | None:
        began, state = time.time_ns(), step_input.state
        self.steps += 1
        work = step_input.until - state.position
        if state.cancelled.wait(work * self._token_seconds):
            return None
        middle = time.time_ns()
        prompt = len(state.sentence.voice.tokens)
        spoken, before = max(step_input.until - prompt, 0), max(state.position - prompt, 0)
        state.position = step_input.until
        end = _length(spoken, state.sentence.speed) - (0 if step_input.final else self._held_back)
        samples = self._with_fault(
            tone(step_input.tokens, state.sentence, state.samples, max(end, state.samples)), state
        )
        state.samples += samples.size
        frames = (spoken - before) * MEL_FRAMES_PER_TOKEN
        return Decoded(samples, work, frames, (began, middle), (middle, time.time_ns()))

    def _with_fault(self, samples: NDArray[np.float32], state: FakeState) -> NDArray[np.float32]:
        """Apply the simulated fault to samples that begin at `state.samples`."""
        sentence = state.sentence
        if not self._fault or philox.uniform(sentence.seed, sentence.sentence_index, 0, 0) >= self._share:
            return samples
        places = state.samples + np.arange(samples.size)
        if self._fault == "device_lost":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if self._fault == "non_finite":
            return np.where(places < SAMPLE_RATE // 2, samples, np.float32(np.nan))
        if self._fault == "pause":
            return np.where((places < SAMPLE_RATE // 2) | (places >= 9 * SAMPLE_RATE // 2), samples, np.float32(0))
        if self._fault == "saturated":
            return np.where(samples >= 0, np.float32(0.99), np.float32(-0.99))
        return np.zeros_like(samples)


def tone(tokens: NDArray[np.int64], sentence: Sentence, begin: int, end: int) -> NDArray[np.float32]:
    """Samples begin to end of the sentence: a token determines a pitch of 200 to 1000 Hz, seed,
    sentence and the number of Euler steps determine the amplitude.
    """
    places = np.arange(begin, end)
    spoken = np.minimum((places * sentence.speed).astype(np.int64) // SAMPLES_PER_TOKEN, len(tokens) - 1)
    pitch = 200.0 + 800.0 * tokens[spoken] / SPEECH_VOCABULARY
    loudness = 0.2 + 0.1 * math.sin(sentence.seed % 1009 + 0.37 * sentence.sentence_index)
    loudness *= sentence.euler_steps / EULER_STEPS
    return (loudness * np.sin(2 * np.pi * pitch * places / SAMPLE_RATE)).astype(np.float32)


def _length(tokens: int, speed: float) -> int:
    return int(tokens * MEL_FRAMES_PER_TOKEN / speed) * SAMPLES_PER_MEL_FRAME


def load_fake(
    token_seconds: float, fault: str = "", share: float = 1.0, hold_back_tokens: int = MOST_HELD_BACK_TOKENS
) -> Backend:
    """The fake decoder for all profiles; its steps are counted as Euler steps."""
    decoder = FakeDecoder(token_seconds, fault, share, hold_back_tokens)
    return Backend(Identity("tones", "fake", "float32", "cpu"), dict.fromkeys(Profile, decoder), lambda: decoder.steps)
