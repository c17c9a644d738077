"""The batcher that serves, between modelled engines, for listeners on a virtual clock, and what its
requests came to.
"""

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from bench.token2wav_schedule.request import WAY_SECONDS, ModelledRequest
from cosyserve.load.player import Player
from cosyserve.spec import MEL_BINS, SPEAKER_DIMENSION
from services.orchestrator.load_control.adaptive_limit import AdaptiveLimit, StageLoad
from services.token2wav.inputs.request import Profile, Voice
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.memory_budget import Limits
from tools.capacity.timing.clock import VirtualServers
from tools.capacity.timing.engines import ModelledDecoder, ModelledLlm, Times

PROMPT_TOKENS = 87
FRONTEND_SECONDS = 0.004
"""From the request to ids."""
WAY_SECONDS_PER_STREAM = 0.001
"""What each open stream adds to a message's way to the listener, on average, times the jitter of
the engines.
"""


@dataclass
class Outcome:
    """first: seconds to the first sound of each request. seconds: of the whole run. widths: grid
    blocks of each step of token2wav.
    """

    first: list[float] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)
    audio: float = 0.0
    seconds: float = 0.0
    busy: float = 0.0
    widths: list[int] = field(default_factory=list)

    def add(self, player: Player) -> None:
        """One more request is over."""
        assert player.first_sound is not None
        self.first.append(player.first_sound)
        self.gaps.append(player.gaps)
        self.stalls.append(player.stalls)
        self.audio += player.audio

    def join(self, other: "Outcome") -> None:
        """The other's requests and times count here, too."""
        self.first += other.first
        self.gaps += other.gaps
        self.stalls += other.stalls
        self.widths += other.widths
        self.audio += other.audio
        self.seconds += other.seconds
        self.busy += other.busy

    def first_sound(self, share: float) -> float:
        """Seconds within which this share of requests sounded."""
        return sorted(self.first)[min(int(share * len(self.first)), len(self.first) - 1)]

    @property
    def gap_free(self) -> float:
        """Share of requests whose player never ran dry."""
        return sum(gaps == 0 for gaps in self.gaps) / len(self.gaps)


class Simulation:
    """tokens: shortest and longest sentence, 25 a second. hold_seconds: see
    `services.token2wav.scheduling.first_chunk_delay`. widest_step: streams that share a step.
    limited: who comes when as many speak as the orchestrator would admit is refused, and does not
    come again. sentences: of each request. ahead: whether later ones are begun early. replicas: of
    the decoder, each with a device of its own; the first one shares its device with the
    speech-token model. shares_load: whether the replicas know each other's streams."""

    def __init__(
        self,
        times: Times,
        tokens: tuple[int, int],
        seed: int = 1,
        hold_seconds: float | None = None,
        widest_step: int = 32,
        *,
        limited: bool = False,
        sentences: int = 1,
        ahead: bool = True,
        replicas: int = 1,
        shares_load: bool = True,
    ) -> None:
        self.clock = VirtualServers(self._end)
        self._decoders = [
            ModelledDecoder(
                self.clock,
                replace(times, seed=times.seed + 1000 * number),
                (lambda: False) if number else (lambda: self._llm.working),
                widest_step,
            )
            for number in range(replicas)
        ]
        self._llm = ModelledLlm(self.clock, times, lambda: self._decoders[0].working)
        limits = Limits(max_streams=10_000, state_bytes=1 << 40, reserve_tokens=0)
        self._batchers = [
            Batcher({Profile.CONTINUOUS: decoder}, limits, clock=self.clock, hold_seconds=hold_seconds)
            for decoder in self._decoders
        ]
        mel, speaker = np.zeros((2 * PROMPT_TOKENS, MEL_BINS), np.float32), np.zeros(SPEAKER_DIMENSION, np.float32)
        self._voice = Voice(np.zeros(PROMPT_TOKENS, np.int64), mel, speaker)
        self._rng = random.Random(seed)
        self._tokens, self._sentences, self._ahead, self._shares_load = tokens, sentences, ahead, shares_load
        self._times, self._open = times, 0
        self._limit = AdaptiveLimit(10_000) if limited else None
        self.limits: list[int] = []
        """What it was at each request."""
        self.refused = 0
        self.outcome = Outcome()
        self.counted_from = 0.0
        """Requests before it, in seconds, only warm up what the batcher knows of its engine."""

    def count_from_now(self) -> None:
        """What has been asked for before was a warm-up."""
        self.counted_from = self.clock.now()
        for decoder in self._decoders:
            decoder.seconds, decoder.widths = 0.0, []

    def run(self) -> Outcome:
        """Everything that has been asked for, to its end."""
        self.clock.run([batcher.serve for batcher in self._batchers])
        self.outcome.seconds = self.clock.now() - self.counted_from
        self.outcome.widths = [width for decoder in self._decoders for width in decoder.widths]
        self.outcome.busy = sum(decoder.seconds for decoder in self._decoders) / len(self._decoders)
        return self.outcome

    def ask(self, then: Callable[[], None] = lambda: None) -> None:
        """One request, now; `then` when its answer is complete."""
        if self._is_full():
            self.refused += 1
            return
        self._open += 1

        def over(player: Player, asked: float) -> None:
            self._open -= 1
            if asked >= self.counted_from:
                self.outcome.add(player)
            then()

        engines = self.clock, self._llm, self._batchers
        tokens = [self._rng.randint(*self._tokens) for _ in range(self._sentences)]
        request = ModelledRequest(
            engines, self._voice, tokens, self._way, over, ahead=self._ahead, shares_load=self._shares_load
        )
        self.clock.after(FRONTEND_SECONDS, request.begin)

    def _way(self) -> float:
        """Seconds of a message to its listener."""
        return 2 * WAY_SECONDS + WAY_SECONDS_PER_STREAM * self._times.jitter * self._open * self._rng.expovariate(1.0)

    def _is_full(self) -> bool:
        loads = [
            StageLoad("token2wav", str(number), load)
            for number, each in enumerate(self._batchers)
            if (load := each.load.now)
        ]
        if self._limit is None or not loads:
            return False
        self.limits.append(self._limit.of(loads, self._open, self.clock.now()))
        return self._open >= self.limits[-1]

    def _end(self) -> None:
        for batcher in self._batchers:
            batcher.close()


def closed_loop(simulation: Simulation, streams: int, seconds: float) -> Outcome:
    """`streams` callers, each asking again as soon as its answer is complete; before that each asks
    once, and all wait for each other.
    """
    answered = 0

    def warmed() -> None:
        nonlocal answered
        answered += 1
        if answered == streams:
            simulation.count_from_now()
            for _ in range(streams):
                again()

    def again() -> None:
        if simulation.clock.now() < simulation.counted_from + seconds:
            simulation.ask(again)

    simulation.counted_from = math.inf
    for _ in range(streams):
        simulation.ask(warmed)
    return simulation.run()


def poisson(simulation: Simulation, streams: int, seconds: float, mean_audio: float, seed: int = 2) -> Outcome:
    """Poisson arrivals at a rate with which `streams` of them listen at once on average."""
    rng, at = random.Random(seed), 0.0
    for number in itertools.count():
        at += rng.expovariate(streams / mean_audio)
        if at >= seconds and number >= streams:
            break
        simulation.clock.after(at, simulation.ask)
    return simulation.run()
