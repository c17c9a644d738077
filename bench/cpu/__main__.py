"""Everything that is measured without a GPU, in one command: `python -m bench.cpu [--part NAME]
[--list] [--quick] [--out DIR]`.

The bundled model, or another by --model, through engines and services on this machine; ten minutes
on two cores. Writes report.md, report.json and plots. A part that fails stops no other. The same
command goes on where it was stopped: what is done for the same machine, versions and source is not
done again. On a machine that does other work too, only the ratios within one run mean something.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.command_line import command
from bench.cpu.report import write
from bench.parts.command import add_options, execute
from bench.parts.part import Part

LEVELS = "1,2,4"
QUICK = "quick"


def parts(out: Path, model: Path, seconds: float) -> list[Part]:
    """seconds: of each load of the services."""

    def part(name: str, about: str, module: str, *arguments: str) -> Part:
        command = ("-m", module, "--model", str(model), "--json", str(out / f"{name}.json"), *arguments)
        return Part(name, about, (command,), under=str(model))

    def serving(name: str, about: str) -> Part:
        loads = ("--arrivals", name, "--streams", LEVELS, "--seconds", f"{seconds:g}")
        return replace(part(name, about, "bench.serving", *loads), keeps=True, under=f"{model}, {seconds:g} s a load")

    return [
        part("llm", "a prompt and a token, as served and readable", "bench.llm_cost"),
        part("token2wav", "a second of sound by length and profile", "bench.token2wav_cost"),
        part(
            "token2wav-parts",
            "processor time of flow and vocoder, first hop and a second of sound",
            "bench.token2wav_parts",
        ),
        part("prompt", "first sound of token2wav, its prompt kept and not", "bench.token2wav_cost", "--prompts"),
        _frontend(out),
        serving("closed", "the services over gRPC, callers in a closed loop"),
        serving("poisson", "the services over gRPC, listeners who come by chance"),
        part("offline", "whole sentences in batches", "bench.offline", "--sentences", "8", "--batches", "1,2,4,8"),
    ]


def _frontend(out: Path, *arguments: str, under: str = "") -> Part:
    command = ("-m", "bench.frontend", "--json", str(out / "frontend.json"), *arguments)
    return Part("frontend", "200 characters to token ids", (command,), under=under)


def quick(out: Path, model: Path) -> list[Part]:
    """Whether everything still runs, in seconds: figures that mean little."""
    loads = ("--arrivals", "closed", "--streams", "1", "--seconds", "1", "--json", str(out / "closed.json"))
    command = ("-m", "bench.serving", "--model", str(model), *loads)
    return [
        _frontend(out, "--requests", "5", under=QUICK),
        Part("closed", "the services over gRPC, one asker", (command,), under=QUICK),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command("bench.cpu", __doc__)
    add_options(parser, "build/bench/cpu")
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="of each load of the services (default: %(default)g)"
    )
    parser.add_argument("--quick", action="store_true", help="a few parts, short: does it run?")
    options = parser.parse_args(arguments)
    out, model = options.out.resolve(), options.model.resolve()
    return execute(options, quick(out, model) if options.quick else parts(out, model, options.seconds), write)


if __name__ == "__main__":
    sys.exit(main())
