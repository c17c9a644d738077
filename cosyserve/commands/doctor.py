"""`cosyserve doctor`: what this machine has, what is wrong with it, how to fix it, and which
settings suit it.
"""

import argparse
import asyncio

from cosyserve.commands.terminal.arguments import SERVER, add_json, add_model, decoder_directory, model_directory
from cosyserve.commands.terminal.output import print_json
from cosyserve.host.doctor.examination import Examination, examine
from cosyserve.host.doctor.finding import State

HELP = "say what is wrong with this machine, and which settings suit it"
_MARKS = {State.OK: "ok", State.NOTE: "note", State.PROBLEM: "PROBLEM"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--listen",
        default=SERVER,
        metavar="HOST:PORT",
        help="public endpoint that has to be free (default: %(default)s)",
    )
    parser.add_argument("--gpu", action="store_true", help="a machine without a usable GPU is a problem, not a note")
    add_json(parser)


async def run(arguments: argparse.Namespace) -> int:
    model = model_directory(arguments.model)
    decoder = decoder_directory(arguments)
    examination = await asyncio.to_thread(
        examine, model, arguments.listen, decoder_model=decoder, gpu_wanted=arguments.gpu
    )
    if arguments.json:
        print_json(examination.as_dict())
    else:
        print(text(examination))
    return 0 if examination.healthy else 1


def text(examination: Examination) -> str:
    """A line for each finding, with its consequence and fix below; then the settings."""
    width = max(len(finding.check) for finding in examination.findings)
    lines = []
    for finding in examination.findings:
        lines.append(f"{_MARKS[finding.state]:<8}{finding.check:<{width}}  {finding.observed}")
        lines += [
            f"{'':<8}{'':<{width}}  {line}"
            for line in (finding.means, f"fix: {finding.fix}" if finding.fix else "")
            if line
        ]
    states = [finding.state for finding in examination.findings]
    lines += [
        "",
        f"problems: {states.count(State.PROBLEM)}, notes: {states.count(State.NOTE)}",
        "",
        f"settings for this machine: {examination.recommendation.tier}",
        *(f"# {why}" for why in examination.recommendation.why),
        *(f"{name}={value}" for name, value in examination.recommendation.environ.items()),
    ]
    return "\n".join(lines)
