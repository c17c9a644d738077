"""`cosyserve demo`: starts everything, says one sentence twice, shows the time to the first sound,
stops everything.
"""

import argparse
import sys
from pathlib import Path

from cosyserve.audio.wav import WavWriter
from cosyserve.client import AsyncClient
from cosyserve.commands.terminal.arguments import add_json, add_stack, model_directory, model_pair
from cosyserve.commands.terminal.audio_output import check_output
from cosyserve.commands.terminal.output import FAILED, print_json, report_failure
from cosyserve.host.starting.measurement import TEXT, measure
from cosyserve.host.starting.serving import WITHOUT_KEYS
from cosyserve.host.supervision.supervisor import local_deployment
from cosyserve.spec import SAMPLE_RATE

HELP = "start everything, say a sentence, stop everything"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("hello.wav"), metavar="FILE", help="WAV file (default: %(default)s)"
    )
    parser.add_argument("--text", default=TEXT, help="what to say")
    add_stack(parser)
    add_json(parser)


async def run(arguments: argparse.Namespace) -> int:
    check_output(str(arguments.output))
    model = model_directory(arguments.model)
    print(f"starting frontend, llm, token2wav and orchestrator on {model}", file=sys.stderr)
    stack_of = local_deployment(
        model,
        backend=arguments.backend,
        device=arguments.device,
        gpu_sharing=arguments.gpu_sharing,
        environ={**WITHOUT_KEYS, **model_pair(arguments)},
        report=lambda line: print(f"  {line}", file=sys.stderr),
    )
    async with stack_of as stack, AsyncClient(stack.plain) as client:
        measured = await measure(client, arguments.text)
    cold, warm = measured.cold, measured.warm
    if measured.fault:
        return report_failure("", measured.fault, FAILED, as_json=arguments.json)
    with WavWriter(arguments.output, SAMPLE_RATE) as file:
        file.write(measured.audio)
    if arguments.json:
        print_json({"output": str(arguments.output), "cold": cold.as_dict(), "warm": warm.as_dict()})
    else:
        print(f"{arguments.output}: {cold.audio:.2f} s of audio, voice {cold.header.voice}, seed {cold.header.seed}")
        print(measured.table())
    return 0
