"""Everything that is measured on one GPU, in one command: `python -m bench.gpu [--part NAME]
[--list] [--fresh] [--out DIR]`.

Builds a model of the published sizes with random weights, runs every part in a process of its own,
and writes report.md, report.json and plots. A part that fails stops no other. The same command goes
on where it was stopped: what is done for the same machine, versions and source is not done again.
"""

import argparse
import sys
from pathlib import Path

from bench.gpu.parts import Plan, parts
from bench.gpu.report import write
from bench.parts.command import add_options, execute
from cosyserve.engines.gpu_facts import gpus

MEBIBYTE = 1 << 20


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, "build/bench/gpu")
    parser.add_argument(
        "--model",
        type=Path,
        default=Path("build/bench/real-size"),
        help="where the model is made (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="of each load of the services (default: %(default)g)"
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="of the soak (default: %(default)g)")
    options = parser.parse_args(arguments)
    present, runs = gpus(), not (options.list or options.report)
    if runs and not present:
        print(
            "bench.gpu needs an NVIDIA GPU and nvidia-smi; python -m bench.cpu measures a machine without one",
            file=sys.stderr,
        )
        return 2
    room = present[0].free_mib * MEBIBYTE if runs else 1 << 40
    plan = Plan(options.out.resolve(), options.model.resolve(), room, options.seconds, options.minutes)
    try:
        wanted = parts(plan)
    except ValueError as error:
        print(f"bench.gpu: {error}", file=sys.stderr)
        return 2
    return execute(options, wanted, write)


if __name__ == "__main__":
    sys.exit(main())
