"""`cosyserve plan`: pods, GPUs, thresholds and cost for so many listeners."""

import argparse
from pathlib import Path

from cosyserve.capacity.tables import as_dict, as_text, as_yaml
from cosyserve.commands.terminal.arguments import add_json
from cosyserve.commands.terminal.output import WrongUsage, print_json
from cosyserve.commands.terminal.plan_arguments import OPTIONS, add_plan, planned
from cosyserve.commands.terminal.server_package import require_engines, run_module

HELP = "pods, GPUs, scaling thresholds and cost for so many listeners, from a report of `make bench-gpu`"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_plan(parser)
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    form.add_argument("--values", action="store_true", help="print values for k8s/chart")
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="run the plan on a virtual clock, with the scheduling code that serves, scaling and Poisson arrivals; "
        "`python -m tools.capacity` has more options",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="with --simulate: draw the run")


async def run(arguments: argparse.Namespace) -> int:
    if arguments.svg is not None and not arguments.simulate:
        raise WrongUsage("--svg draws a simulation; add --simulate")
    if arguments.values and arguments.simulate:
        raise WrongUsage("--values prints values and --simulate runs the plan; give one of them")
    if arguments.simulate:
        require_engines("plan --simulate", "tools.capacity")
        return await run_module("tools.capacity", *_simulation_options(arguments))
    _, found = planned(arguments)
    if arguments.json:
        print_json(as_dict(found))
    else:
        print(as_yaml(found) if arguments.values else as_text(found), end="" if arguments.values else "\n")
    return 0


def _simulation_options(arguments: argparse.Namespace) -> list[str]:
    """The options of this command line that `python -m tools.capacity` takes as well."""
    given = [
        text
        for name in OPTIONS
        if (value := getattr(arguments, name)) is not None
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]
    return [*given, *(["--json"] if arguments.json else []), *(["--svg", str(arguments.svg)] if arguments.svg else [])]
