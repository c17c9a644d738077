"""`cosyserve plan`: pods, GPUs, thresholds and cost for so many listeners."""

import argparse

from cosyserve.capacity.helm_values import as_yaml
from cosyserve.capacity.tables import as_dict, as_text
from cosyserve.commands.terminal.arguments import add_json
from cosyserve.commands.terminal.output import print_json
from cosyserve.commands.terminal.plan_arguments import add_plan, planned

HELP = "pods, GPUs, scaling thresholds and cost for so many listeners, from a report of `make bench-gpu`"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_plan(parser)
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    form.add_argument("--values", action="store_true", help="print values for k8s/chart")


async def run(arguments: argparse.Namespace) -> int:
    _, found = planned(arguments)
    if arguments.json:
        print_json(as_dict(found))
    else:
        print(as_yaml(found) if arguments.values else as_text(found), end="" if arguments.values else "\n")
    return 0
