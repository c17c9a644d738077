"""Does a plan hold? `python -m tools.capacity --streams N --slo-ms M [--minutes 10] [--svg FILE]`

The pods of the plan under Poisson arrivals on a virtual clock, with the scheduling code that
serves: admission, wait estimate, the scheduler of the LLM, batcher and pages of token2wav; engines
take what the report says. Pods are scaled by KEDA's rule, with old metrics and pods that take their
time to start, and are lost. Ends with status 1 if fewer than 99 % of the players were without a
gap, a request failed, or the first sound missed the limit.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cosyserve.capacity.tables import as_text
from cosyserve.commands.terminal.arguments import add_json, number, whole
from cosyserve.commands.terminal.output import print_json
from cosyserve.commands.terminal.plan_arguments import add_plan, planned
from tools.capacity.command_line import command, refusing
from tools.capacity.fleet.arrivals import Curve, by_chance
from tools.capacity.fleet.fleet import Fleet
from tools.capacity.fleet.layout import STAGES
from tools.capacity.fleet.outcome import Outcome, svg
from tools.capacity.planned_fleet import Sample, layout, sample, speech

GAP_FREE = 0.99
_MINUTES = number("number of minutes from 0.1 to 1440", lambda value: 0.1 <= value <= 1440)
_SECONDS = number("number of seconds from 0 to 3600", lambda value: 0 <= value <= 3600)


def curve(text: str) -> Curve:
    """argparse type of MINUTE:SHARE,..."""
    try:
        points = [(60 * float(minute), float(share)) for minute, share in (part.split(":") for part in text.split(","))]
    except ValueError:
        points = []
    times = [at for at, _ in points]
    if not points or times != sorted(times) or times[0] != 0 or not all(0 <= share <= 10 for _, share in points):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no list of MINUTE:SHARE from minute 0 on, such as 0:0.5,4:1; shares are 0 to 10"
        )
    return points


def loss(text: str) -> tuple[float, str]:
    """argparse type of STAGE@MINUTE."""
    stage, at, minute = text.partition("@")
    try:
        seconds = 60 * float(minute)
    except ValueError:
        seconds = -1.0
    if not at or stage not in STAGES or not 0 <= seconds < 1e6:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no STAGE@MINUTE such as token2wav@5; stages: {', '.join(STAGES)}"
        )
    return seconds, stage


def arguments() -> argparse.ArgumentParser:
    """The options."""
    parser = command("tools.capacity", __doc__)
    add_plan(parser)
    parser.add_argument("--minutes", type=_MINUTES, default=10.0, help="of arrivals (default: %(default)g)")
    parser.add_argument(
        "--curve",
        type=curve,
        default=[(0.0, 0.5), (120.0, 1.0)],
        metavar="MINUTE:SHARE,...",
        help="of the streams over time, straight between the points (default: 0:0.5,2:1)",
    )
    parser.add_argument(
        "--lose",
        type=loss,
        action="append",
        default=[],
        metavar="STAGE@MINUTE",
        help="the busiest pod of a stage at that minute; repeatable",
    )
    parser.add_argument(
        "--engine-start",
        type=_SECONDS,
        default=60.0,
        metavar="SECONDS",
        help="until a new pod of llm or token2wav serves (default: %(default)g)",
    )
    parser.add_argument(
        "--host-start",
        type=_SECONDS,
        default=10.0,
        metavar="SECONDS",
        help="until a new pod of another stage serves (default: %(default)g)",
    )
    parser.add_argument(
        "--most-simulated",
        type=whole(1, 1_000_000),
        default=1000,
        metavar="STREAMS",
        help="of more streams a share is simulated, with pods planned for it (default: %(default)s)",
    )
    parser.add_argument("--seed", type=whole(0, 2**31), default=1, help="of all chance (default: %(default)s)")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw load, pods, gaps, first sound and refusals")
    add_json(parser)
    return parser


@refusing
def main(given: Sequence[str] | None = None) -> int:
    options = arguments().parse_args(given)
    profile, whole_plan = planned(options)
    part = sample(profile, whole_plan, options.most_simulated)
    failures = tuple(options.lose)
    fleet = Fleet(
        profile,
        layout(part.plan, options.curve, failures, options.engine_start, options.host_start),
        speech(part.plan),
        options.seed,
    )
    begun = time.monotonic()
    by_chance(fleet, part.plan.demand.streams, 60 * options.minutes, options.curve, options.seed + 4)
    fleet.run(60 * options.minutes)
    fleet.drain()
    seen = figures(part, fleet, time.monotonic() - begun)
    if options.svg is not None:
        title = (
            f"{whole_plan.demand.streams} streams, of which {part.plan.demand.streams} are simulated, {profile.name}"
        )
        options.svg.write_text(svg(title, fleet.outcome.periods), encoding="utf-8")
    if options.json:
        print_json(seen)
    else:
        print("\n".join([as_text(part.plan), "", *lines(seen)]))
    return int(not seen["holds"])


def figures(part: Sample, fleet: Fleet, wall: float) -> dict[str, Any]:
    """What became of the requests; seconds and counts."""
    outcome: Outcome = fleet.outcome
    first = {f"p{percent}": outcome.first_sound(percent) for percent in (50, 95, 99)}
    slo = part.plan.demand.slo
    late = sum(seconds > slo for one in outcome.periods for seconds in one.first_sounds) / max(outcome.answered, 1)
    return {
        "simulated_share": part.share,
        "simulated_streams": part.plan.demand.streams,
        "arrived": outcome.arrived,
        "served": outcome.answered,
        "refused": outcome.refused,
        "failed": outcome.failed,
        "running": len(fleet.active),
        "resumed": outcome.resumed,
        "gap_free": outcome.gap_free,
        "longest_gap_seconds": max(outcome.stalls, default=0.0),
        "first_sound_seconds": first,
        "share_above_slo": late,
        "pods": {name: [min(sizes), max(sizes)] for name, sizes in _sizes(outcome).items()},
        "wall_seconds": wall,
        "holds": outcome.gap_free >= GAP_FREE and not outcome.failed and late <= 0.05,
    }


def _sizes(outcome: Outcome) -> dict[str, list[int]]:
    return {name: [one.replicas.get(name, 0) for one in outcome.periods if one.replicas] or [0] for name in STAGES}


def lines(seen: dict[str, Any]) -> list[str]:
    """For people."""
    first = ", ".join(f"{name} {1000 * (value or 0):.0f}" for name, value in seen["first_sound_seconds"].items())
    pods = ", ".join(f"{name} {low} to {high}" for name, (low, high) in seen["pods"].items())
    return [
        f"simulated: {seen['simulated_streams']} streams ({100 * seen['simulated_share']:.3g} % of all), "
        f"{seen['arrived']} requests in {seen['wall_seconds']:.0f} s of computing",
        f"served {seen['served']}, refused {seen['refused']}, failed {seen['failed']}, "
        f"went on at another pod {seen['resumed']}",
        f"players without a gap {seen['gap_free']:.2%}, longest time dry {seen['longest_gap_seconds']:.2f} s",
        f"first sound in ms: {first}; above the limit {seen['share_above_slo']:.1%}",
        f"pods: {pods}",
        "the plan holds" if seen["holds"] else "the plan does not hold",
    ]


if __name__ == "__main__":
    sys.exit(main())
