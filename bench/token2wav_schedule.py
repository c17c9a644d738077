"""What does the schedule of token2wav do to listeners? `python -m bench.token2wav_schedule
[--streams 1,8,64] [--throws 6]`

The batcher that serves, between a speech-token model and a decoder that only take time
(bench/simulation/engines.py: what one H200 was seen to take), on a clock of its own: a minute of 64
listeners takes seconds on any CPU. Loads and columns as in `bench.serving`.
"""

import argparse
import itertools
import math
import random
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bench.load.player import Player
from bench.simulation.engines import ModelledDecoder, ModelledLlm, Times
from bench.simulation.outcome import Outcome
from bench.simulation.request import WAY_SECONDS, ModelledRequest
from bench.simulation.servers import VirtualServers
from cosyserve.spec import MEL_BINS, SPEAKER_DIMENSION
from services.orchestrator.load_control.adaptive_limit import AdaptiveLimit, StageLoad
from services.token2wav.inputs.request import MAX_TOKENS, Profile, Voice
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.memory_budget import Limits

PROMPT_TOKENS = 87
FRONTEND_SECONDS = 0.004
"""From the request to ids."""
WAY_SECONDS_PER_STREAM = 0.001
"""What each open stream adds to a message's way to the listener, on average, times the jitter of
the engines.
"""


class Simulation:
    """tokens: shortest and longest sentence, 25 a second. hold_seconds: see
    `services.token2wav.scheduling.first_chunk_delay`. widest_step: streams that share a step.
    limited: who comes when as many speak as the orchestrator would admit is refused, and does not
    come again. sentences: of each request. ahead: whether later ones are begun early. replicas: of
    the decoder, each with a device of its own; the first one shares its device with the
    speech-token model. tells: whether they hear of each other's streams."""

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
        tells: bool = True,
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
        self._tokens, self._sentences, self._ahead, self._tells = tokens, sentences, ahead, tells
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
        request = ModelledRequest(engines, self._voice, tokens, self._way, over, ahead=self._ahead, tells=self._tells)
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
    """So many askers, each asking anew as soon as its answer is complete; before that each asks
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
    """Arrivals by chance, so many that `streams` of them listen at once on average."""
    rng, at = random.Random(seed), 0.0
    for number in itertools.count():
        at += rng.expovariate(streams / mean_audio)
        if at >= seconds and number >= streams:
            break
        simulation.clock.after(at, simulation.ask)
    return simulation.run()


HEAD = "arrivals  streams  tokens    requests  first sound p50    p95 ms  gap-free  longest stall  audio s/s  blocks/step  busy"


def row(arrivals: str, streams: int, tokens: tuple[int, int], found: Outcome) -> str:
    width = sum(found.widths) / max(len(found.widths), 1)
    return (
        f"{arrivals:8} {streams:8} {tokens[0]:4}-{tokens[1]:<4} {len(found.first):8} "
        f"{1000 * found.first_sound(0.5):16.0f} "
        f"{1000 * found.first_sound(0.95):9.0f} {found.gap_free:9.1%} {max(found.stalls):12.2f} s "
        f"{found.audio / found.seconds:10.1f} "
        f"{width:12.1f} {found.busy / found.seconds:5.0%}"
    )


def lengths_of(parser: argparse.ArgumentParser, told: str) -> tuple[int, int]:
    """The two numbers of --tokens."""
    try:
        shortest, longest = map(int, told.split(","))
    except ValueError:
        parser.error(f"--tokens is {told!r}, wanted are two numbers such as 14,40")
    if not 1 <= shortest <= longest <= MAX_TOKENS:
        parser.error(f"--tokens is {told!r}, allowed are 1 to {MAX_TOKENS}, the smaller one first")
    return shortest, longest


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.token2wav_schedule",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--streams", default="1,2,4,8,16,32,64,128,192", help="loads (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load (default: %(default)g)")
    parser.add_argument("--hold", type=float, help="longest wait of a first piece in seconds (default: the service's)")
    parser.add_argument("--sentences", type=int, default=1, help="of each request (default: %(default)s)")
    parser.add_argument(
        "--tokens", help="of each sentence, shortest and longest, as 14,40 (default: 60,95, then 230,270)"
    )
    parser.add_argument(
        "--in-turn", action="store_true", help="begin no sentence before the one in front of it was sent"
    )
    parser.add_argument(
        "--replicas", type=int, default=1, help="of token2wav, each on a GPU of its own (default: %(default)s)"
    )
    parser.add_argument("--untold", action="store_true", help="let no replica hear how many streams the others have")
    parser.add_argument(
        "--jitter", type=float, default=0.1, help="share by which all takes longer on average (default: %(default)g)"
    )
    parser.add_argument(
        "--limited", action="store_true", help="refuse those whom the orchestrator would, by what the engine measures"
    )
    parser.add_argument(
        "--cpu", action="store_true", help="engines that take what two cores were seen to take, not an H200"
    )
    parser.add_argument(
        "--throws",
        type=int,
        default=1,
        help="of the dice: each load is run so often, and told as one (default: %(default)s)",
    )
    told = parser.parse_args(arguments)
    lengths = [(60, 95), (230, 270)] if told.tokens is None else [lengths_of(parser, told.tokens)]
    print(HEAD)
    for arrivals, tokens, streams in itertools.product(
        ("closed", "poisson"), lengths, map(int, told.streams.split(","))
    ):
        found = Outcome()
        for seed in range(told.throws):
            simulation = Simulation(
                Times.of_two_cores(told.jitter, seed) if told.cpu else Times(jitter=told.jitter, seed=seed),
                tokens,
                seed=seed + 1,
                hold_seconds=told.hold,
                widest_step=1 if told.cpu else 32,
                limited=told.limited,
                sentences=told.sentences,
                ahead=not told.in_turn,
                replicas=told.replicas,
                tells=not told.untold,
            )
            if arrivals == "closed":
                found.join(closed_loop(simulation, streams, told.seconds))
            else:
                found.join(poisson(simulation, streams, told.seconds, told.sentences * sum(tokens) / 50, seed=seed + 2))
        print(row(arrivals, streams, tokens, found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
