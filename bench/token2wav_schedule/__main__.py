"""What does the schedule of token2wav do to listeners? `python -m bench.token2wav_schedule
[--streams 1,8,64] [--throws 6]`

The batcher that serves, between a speech-token model and a decoder that only take time
(tools/capacity/timing/engines.py: as measured on one H200), on a virtual clock: a minute of 64
listeners takes seconds on any CPU. Loads and columns as in `bench.serving`.
"""

import argparse
import itertools
import sys

from bench.token2wav_schedule.simulation import Outcome, Simulation, closed_loop, poisson
from cosyserve.commands.terminal.arguments import numbers
from services.token2wav.inputs.request import MAX_TOKENS
from tools.capacity.timing.engines import Times

HEAD = (
    "arrivals  streams  tokens    requests  first sound p50    p95 ms  gap-free  longest stall  audio s/s  "
    "blocks/step  busy"
)


def row(arrivals: str, streams: int, tokens: tuple[int, int], outcome: Outcome) -> str:
    width = sum(outcome.widths) / max(len(outcome.widths), 1)
    return (
        f"{arrivals:8} {streams:8} {tokens[0]:4}-{tokens[1]:<4} {len(outcome.first):8} "
        f"{1000 * outcome.first_sound(0.5):16.0f} "
        f"{1000 * outcome.first_sound(0.95):9.0f} {outcome.gap_free:9.1%} {max(outcome.stalls):12.2f} s "
        f"{outcome.audio / outcome.seconds:10.1f} "
        f"{width:12.1f} {outcome.busy / outcome.seconds:5.0%}"
    )


def lengths_of(parser: argparse.ArgumentParser, text: str) -> tuple[int, int]:
    """The two numbers of --tokens."""
    try:
        shortest, longest = map(int, text.split(","))
    except ValueError:
        parser.error(f"--tokens is {text!r}, wanted are two numbers such as 14,40")
    if not 1 <= shortest <= longest <= MAX_TOKENS:
        parser.error(f"--tokens is {text!r}, allowed are 1 to {MAX_TOKENS}, the smaller one first")
    return shortest, longest


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.token2wav_schedule",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--streams", type=numbers(1, 4096), default="1,2,4,8,16,32,64,128,192", help="loads (default: %(default)s)"
    )
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
        help="of the dice: each load is run so often, and reported as one (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    lengths = [(60, 95), (230, 270)] if options.tokens is None else [lengths_of(parser, options.tokens)]
    print(HEAD)
    for arrivals, tokens, streams in itertools.product(("closed", "poisson"), lengths, options.streams):
        outcome = Outcome()
        for seed in range(options.throws):
            simulation = Simulation(
                Times.of_two_cores(options.jitter, seed) if options.cpu else Times(jitter=options.jitter, seed=seed),
                tokens,
                seed=seed + 1,
                hold_seconds=options.hold,
                widest_step=1 if options.cpu else 32,
                limited=options.limited,
                sentences=options.sentences,
                ahead=not options.in_turn,
                replicas=options.replicas,
                shares_load=not options.untold,
            )
            if arrivals == "closed":
                outcome.join(closed_loop(simulation, streams, options.seconds))
            else:
                outcome.join(
                    poisson(simulation, streams, options.seconds, options.sentences * sum(tokens) / 50, seed=seed + 2)
                )
        print(row(arrivals, streams, tokens, outcome), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
