"""What does token2wav's scheduler take between two steps, while the GPU waits? `python -m
tools.capacity.planning [--listeners 64,304]`

The batcher that serves, in the simulation of so many listeners on one GPU; processor time of the
thread that settles a step and chooses the next one. Three figures fit all steps best: of a step, of
each open stream, and of each stream that takes part in the step
(`host.planning_microseconds` of a profile).
"""

import argparse
import statistics
import sys
from collections.abc import Sequence

import numpy as np

from cosyserve.capacity.profile import EngineProfile
from cosyserve.capacity.report_file import default_profile
from cosyserve.commands.terminal.arguments import whole
from tools.capacity.fleet.arrivals import listening
from tools.capacity.fleet.fleet import Fleet
from tools.capacity.fleet.layout import Speech
from tools.capacity.measured import loads, one_gpu
from tools.capacity.timing.driven_batcher import Planned

_OUTLIERS = 0.01
"""Share of the steps that took longest, which are left out: something else had the processor."""


def planned(profile: EngineProfile, listeners: int, seconds: float, seed: int) -> list[Planned]:
    """Every step of so many listeners in `seconds`."""
    steps: list[Planned] = []
    fleet = Fleet(profile, one_gpu(profile), Speech(), seed)
    for pod in fleet.token2wav.pods:
        pod.driven.planned = steps.append
    listening(fleet, listeners, seconds, seed + 50)
    fleet.run(seconds)
    return steps


def fitted(steps: Sequence[Planned]) -> tuple[float, float, float]:
    """Microseconds of a step, of an open stream, and of one in the step: least squares."""
    kept = sorted(steps, key=lambda step: step.seconds)[: max(int(len(steps) * (1 - _OUTLIERS)), 1)]
    of_each = np.array([(1.0, step.streams, step.taking_part) for step in kept])
    found, *_ = np.linalg.lstsq(of_each, np.array([1e6 * step.seconds for step in kept]), rcond=None)
    return float(found[0]), float(found[1]), float(found[2])


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.capacity.planning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--listeners", type=loads, default=[64, 304], metavar="N,N", help="(default: 64,304)")
    parser.add_argument("--seconds", type=whole(1, 600), default=9, help="of each (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(given)
    profile, steps = default_profile(), list[Planned]()
    for listeners in options.listeners:
        steps += (these := planned(profile, listeners, options.seconds, options.seed))
        median = 1e3 * statistics.median(step.seconds for step in these)
        streams = statistics.mean(step.streams for step in these)
        width = statistics.mean(step.taking_part for step in these)
        print(f"{listeners} listeners: {len(these)} steps, {streams:.0f} streams, {width:.1f} in a step: "
              f"{median:.2f} ms (median)", flush=True)  # fmt: skip
    a_step, a_stream, in_it = fitted(steps)
    print(f"microseconds: {a_step:.0f} a step, {a_stream:.1f} an open stream, {in_it:.0f} a stream in the step")
    return 0


if __name__ == "__main__":
    sys.exit(main())
