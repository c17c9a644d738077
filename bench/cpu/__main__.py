"""Everything that is measured without a GPU, in one command: `python -m bench.cpu [--part NAME]
[--list] [--quick] [--out DIR]`.

The bundled model, or another by --model, through engines and services on this machine; ten minutes
on two cores. Writes report.md, report.json and plots. A part that fails stops no other. The same
command goes on where it was stopped: what is done for the same machine, versions and source is not
done again. On a machine that does other work too, only the ratios within one run mean something.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.cpu import write
from bench.parts.command import add_options, execute
from bench.parts.part import Part

LEVELS = "1,2,4"
QUICK = "quick"


def parts(out: Path, model: Path, seconds: float) -> list[Part]:
    """seconds: of each load of the services."""
    own = ("--model", str(model))

    def serving(name: str, about: str, arrivals: str) -> Part:
        loads = (
            "--arrivals",
            arrivals,
            "--streams",
            LEVELS,
            "--seconds",
            f"{seconds:g}",
            "--json",
            str(out / f"{name}.json"),
        )
        return Part(
            name, about, (("-m", "bench.serving", *own, *loads),), keeps=True, under=f"{model}, {seconds:g} s a load"
        )

    offline = (
        "-m",
        "bench.offline",
        *own,
        "--sentences",
        "8",
        "--batches",
        "1,2,4,8",
        "--json",
        str(out / "offline.json"),
    )
    return [
        Part(
            "llm",
            "a prompt and a token, as served and readable",
            (("-m", "bench.llm_cost", *own, "--json"),),
            prints="json",
            under=str(model),
        ),
        Part(
            "token2wav",
            "a second of sound by length and profile",
            (("-m", "bench.token2wav_cost", *own, "--json"),),
            prints="json",
            under=str(model),
        ),
        Part(
            "token2wav-parts",
            "processor time of flow and vocoder, first hop and a second of sound",
            (("-m", "bench.token2wav_parts", *own),),
            prints="text",
            under=str(model),
        ),
        Part(
            "prompt",
            "first sound of token2wav, its prompt kept and not",
            (("-m", "bench.prompt_cache", *own, "--json"),),
            prints="json",
            under=str(model),
        ),
        Part(
            "hold-back",
            "exactness of the vocoder by frames held back",
            (("-m", "bench.vocoder_hold_back"),),
            prints="text",
        ),
        Part("frontend", "200 characters to token ids", (("-m", "bench.frontend"),), prints="text"),
        serving("closed", "the services over gRPC, callers in a closed loop", "closed"),
        serving("poisson", "the services over gRPC, listeners who come by chance", "poisson"),
        Part("offline", "whole sentences in batches", (offline,), under=str(model)),
    ]


def quick(out: Path, model: Path) -> list[Part]:
    """Whether everything still runs, in seconds: figures that mean little."""
    loads = ("--arrivals", "closed", "--streams", "1", "--seconds", "1", "--json", str(out / "closed.json"))
    return [
        Part(
            "frontend",
            "200 characters to token ids",
            (("-m", "bench.frontend", "--requests", "5"),),
            prints="text",
            under=QUICK,
        ),
        Part(
            "closed",
            "the services over gRPC, one asker",
            (("-m", "bench.serving", "--model", str(model), *loads),),
            under=QUICK,
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, "build/bench/cpu")
    parser.add_argument(
        "--model", type=Path, default=Path("models/demo"), help="model directory (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="of each load of the services (default: %(default)g)"
    )
    parser.add_argument("--quick", action="store_true", help="a few parts, short: does it run?")
    options = parser.parse_args(arguments)
    out, model = options.out.resolve(), options.model.resolve()
    return execute(options, quick(out, model) if options.quick else parts(out, model, options.seconds), write)


if __name__ == "__main__":
    sys.exit(main())
