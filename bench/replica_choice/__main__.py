"""`python -m bench.replica_choice`: how evenly three orchestrators spread their calls over the
replicas of a stage, for several choices, loads and ages of the reports.
"""

import argparse
import asyncio

from bench.replica_choice.report_cost import cpu_per_report
from bench.replica_choice.simulation import CHOICES, LOADS, Simulation


def main() -> None:
    """Print calls at the fullest replica relative to the mean, and the difference to the
    emptiest.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2_000.0, help="simulated for each figure")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--gap", type=float, nargs="+", default=[0.2, 1.0], help="seconds between two reports")
    parser.add_argument("--cost", action="store_true", help="measure what reports cost, in place of the table")
    options = parser.parse_args()
    if options.cost:
        for watchers in (1, 5):
            spent = asyncio.run(cpu_per_report(watchers, 10.0))
            print(f"{watchers} watching: {1000 * spent:.2f} ms of CPU a report, both sides together")
        return
    for gap in options.gap:
        print(f"reports {gap:g} s apart: fullest / mean, difference of fullest and emptiest")
        for load_name, load in LOADS.items():
            for name, choice in CHOICES.items():
                spread = Simulation(load, choice, options.replicas, gap).run(options.seconds)
                print(f"  {load_name:15} {name:22} {spread.fullest:5.2f} {spread.difference:6.2f}   {spread.begun}")


if __name__ == "__main__":
    main()
