"""`cosyserve accept MODEL [--token2wav-model DIR]`: examines this machine,
converts the model and builds the engines that are installed here, compares each with the readable
one, has sentences spoken and heard, and loads the services.

Every step is a command of its own with a limit; one that fails stops no other, one that cannot run
here says why and counts as not run. The same command goes on where it was stopped. Exit status: 0
all steps passed, 1 one failed, 2 wrong usage, 3 none failed and some were not run.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.acceptance.report import as_dict, keep, status, text, verdicts
from bench.acceptance.steps import Scope, steps
from bench.parts.command import add_options, execute
from bench.parts.ledger import Ledger
from bench.parts.part import Part
from bench.parts.provenance import ROOT, SOURCES, Subject, source, subject
from cosyserve.commands.terminal.arguments import decoder_directory, number, numbers, whole
from cosyserve.commands.terminal.output import WRONG_USAGE, Parser, WrongUsage, print_json, report_failure
from cosyserve.errors import ModelError
from cosyserve.generations.model_pair import DECODER_MODEL, decoding_directory
from cosyserve.host.hardware import SUPPORTED_LIBRARIES, Machine, this_machine
from cosyserve.model_directory import ModelDirectory

VOICES = "COSYSERVE_FRONTEND_VOICES_URL"
LLM_WEIGHTS, TOKEN2WAV_WEIGHTS = "llm.pt", ("flow.pt", "hift.pt")
GPU_STREAMS, CPU_STREAMS = (1, 16), (1,)


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = Parser(prog="cosyserve accept", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model", type=Path, metavar="MODEL", help="model directory")
    options.add_argument(
        "--token2wav-model",
        type=Path,
        metavar="DIR",
        help=f"directory of another flow and vocoder for its speech tokens (default: {DECODER_MODEL}, else MODEL's)",
    )
    add_options(options, "build/acceptance")
    options.add_argument(
        "--voices", metavar="URL", help="store of made voices, for a model that has none (default: the model's own)"
    )
    options.add_argument("--voice", default="", metavar="ID", help="the only one to be heard (default: all)")
    options.add_argument(
        "--sentences", type=whole(1, 200), default=20, metavar="N", help="to be heard (default: %(default)s)"
    )
    options.add_argument(
        "--max-wer",
        type=number("share from 0 to 1", lambda share: 0 <= share <= 1),
        default=0.05,
        metavar="SHARE",
        help="of wrong words (default: %(default)g)",
    )
    options.add_argument(
        "--streams", type=numbers(1, 1024), metavar="N,N", help="of the load test (default: 1, with a GPU 1,16)"
    )
    options.add_argument(
        "--seconds",
        type=number("number of seconds above 0", lambda seconds: 0 < seconds <= 600),
        default=20.0,
        metavar="N",
        help="of each load (default: %(default)g)",
    )
    options.add_argument("--json", action="store_true", help="print the report as one JSON object")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    wants_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        options = parser().parse_args(arguments)
        decoder = decoder_directory(options)
        hash_of_model = _content(options.model, decoder)
    except WrongUsage as error:
        if not wants_json:
            sys.stderr.write(error.usage)
        return report_failure("", str(error), WRONG_USAGE, as_json=wants_json)
    except ModelError as error:
        return report_failure("", str(error), WRONG_USAGE, as_json=wants_json)
    machine = this_machine()
    options.out = options.out.resolve()
    if options.voices:
        os.environ[VOICES] = options.voices  # of every step, and what it starts
    if decoder is not None:
        os.environ[DECODER_MODEL] = str(decoder := decoder.resolve())
    scope = Scope(
        model=options.model.resolve(),
        decoder=decoder,
        out=options.out,
        machine=machine,
        voices=bool(options.voices),
        sentences=options.sentences,
        most_errors=options.max_wer,
        voice=options.voice,
        streams=options.streams or (GPU_STREAMS if machine.gpu else CPU_STREAMS),
        seconds=options.seconds,
    )
    wanted = steps(scope)
    parts = [step.part for step in wanted]

    def report(out: Path, _: Sequence[Part], ledger: Ledger) -> None:
        keep(out, wanted, ledger, scope.name)

    # On standard output comes the report alone.
    with contextlib.nullcontext() if options.list else contextlib.redirect_stdout(sys.stderr):
        ended = execute(options, parts, report, partial(_subject, machine, hash_of_model))
    ledger = Ledger.read(options.out)
    if options.list or ended == WRONG_USAGE or ledger is None:
        return ended
    found = verdicts(options.out, wanted, ledger)
    if options.json:
        print_json(as_dict(found, ledger, scope.name))
    else:
        print(text(found, ledger, scope.name), end="")
    return status(found)


def _content(model: Path, decoder_model: Path | None) -> str:
    """Hash of the weights, of a model of two directories both. Raises ModelError for what is no
    model directory, and for directories that do not belong together.
    """
    directory, decoder = ModelDirectory(model), decoding_directory(model, decoder_model)
    if decoder_model is None:
        return directory.content_hash((LLM_WEIGHTS, *TOKEN2WAV_WEIGHTS, directory.yaml_name))
    of_llm = directory.content_hash((LLM_WEIGHTS, directory.yaml_name))
    return f"{of_llm}-{decoder.content_hash((*TOKEN2WAV_WEIGHTS, decoder.yaml_name))}"


def _subject(machine: Machine, model: str) -> Subject:
    """Figures belong to these weights, and to these versions of the libraries that engines are made
    of.
    """
    of_tree = subject()
    found: Mapping[str, str | None] = {
        library.name: machine.version(*library.distributions) for library in SUPPORTED_LIBRARIES
    }
    installed = {name: version for name, version in found.items() if version}
    versions = {**of_tree.versions, **installed, "model": model}
    return replace(of_tree, versions=versions, source=source(ROOT, (*SOURCES, "tools")))


if __name__ == "__main__":
    sys.exit(main())
