"""`python -m bench.acceptance.speech MODEL --configuration NAME --json FILE
[--token2wav-model DIR]`: all services with one configuration of `cosyserve start`, and a sentence
through them.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from bench.load.command_line import user_errors
from bench.load.stack import report
from bench.parts.part import write
from cosyserve.generations.model_pair import pair_variables
from cosyserve.host.hardware import this_machine
from cosyserve.host.starting.configurations import BY_NAME
from cosyserve.host.starting.measurement import run_trial, table
from cosyserve.host.starting.plan import Plan, forced, make_plan


def options(program: str, description: str | None) -> argparse.ArgumentParser:
    """Options of a program that examines one configuration."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("model", type=Path, metavar="MODEL", help="model directory")
    parser.add_argument(
        "--token2wav-model", type=Path, metavar="DIR", help="of flow and vocoder, where they are others"
    )
    parser.add_argument("--configuration", choices=tuple(BY_NAME), required=True, help="of cosyserve start")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="where the figures go")
    return parser


def plan_of(given: argparse.Namespace) -> Plan:
    """The plan of that configuration on this machine; the environment names the model's second
    directory from then on.
    """
    machine, decoder = this_machine(), given.token2wav_model
    os.environ |= pair_variables(given.model, decoder)
    return make_plan(forced(given.configuration, machine), machine, given.model, forced=True, decoder_model=decoder)


def main(arguments: list[str] | None = None) -> int:
    given = options("bench.acceptance.speech", __doc__).parse_args(arguments)
    with user_errors("bench.acceptance.speech"):
        trial = asyncio.run(run_trial(plan_of(given), given.model, None, report))
    print(table([trial]))
    figures = {"reason": trial.reason, "start_seconds": trial.start_seconds}
    if trial.measured is not None:
        cold, warm = trial.measured.cold, trial.measured.warm
        figures |= {
            "cold_milliseconds": 1000 * (cold.first_audible or 0.0),
            "warm_milliseconds": 1000 * (warm.first_audible or 0.0),
            "real_time_factor": warm.real_time_factor,
        }
    write(given.json, figures)
    return int(trial.measured is None)


if __name__ == "__main__":
    sys.exit(main())
