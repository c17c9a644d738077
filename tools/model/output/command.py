"""What the commands of this package share: how their options are read and how they end, options
that several have, and the choice of a stage.

A command ends with 0 when it is done, 1 when it failed and 2 for wrong usage. One line on standard
error says why; with --json one object on standard output.
"""

import argparse
import errno
import functools
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cosyserve.commands.terminal.output import (
    FAILED,
    WRONG_USAGE,
    Parser,
    WrongUsage,
    interrupts_enabled,
    report_failure,
)
from cosyserve.engines.engine_cache import EngineCache, default_directory
from cosyserve.errors import ModelError, SettingsError

TOKEN2WAV = "token2wav"
Arguments = Mapping[str, Mapping[str, Any]]
"""Name of each argument, and the keywords of `ArgumentParser.add_argument` that describe it."""
MODEL: Arguments = {"model": {"type": Path, "metavar": "MODEL", "help": "model directory"}}
ENGINES: Arguments = {
    "--engines": {"type": Path, "metavar": "DIR", "help": f"engine cache (default: {default_directory()})"}
}
JSON: Arguments = {"--json": {"action": "store_true", "help": "print one JSON object"}}
JSON_RESULT: Arguments = {"--json": {"action": "store_true", "help": "machine-readable result on stdout"}}
_INTERRUPTED = 130


def command(
    name: str, description: str, arguments: Arguments
) -> Callable[[Callable[[argparse.Namespace], int]], Callable[..., int]]:
    """Make a function of options a command, whose failures are reported and turned into an exit
    status. The result takes the words of the command line, by default those of this process.
    """
    parser = Parser(prog=f"cosyserve model {name}", description=description)
    for argument, how in arguments.items():
        parser.add_argument(argument, **how)

    def made(main: Callable[[argparse.Namespace], int]) -> Callable[..., int]:
        @functools.wraps(main)
        def run(words: Sequence[str] | None = None) -> int:
            as_json = "--json" in (sys.argv[1:] if words is None else words)
            try:
                with interrupts_enabled():
                    return main(parser.parse_args(words))
            except WrongUsage as error:
                if not as_json:
                    sys.stderr.write(error.usage or parser.format_usage())
                return report_failure("", str(error), WRONG_USAGE, as_json=as_json)
            except (ModelError, SettingsError, OSError) as error:
                full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
                hint = "; make room and run it again: what is done is kept" if full else ""
                return report_failure("", f"{error}{hint}", FAILED, as_json=as_json)
            except KeyboardInterrupt:
                return report_failure("", "stopped; the next run goes on from here", _INTERRUPTED, as_json=as_json)

        return run

    return made


def say(line: str) -> None:
    """Print on standard error, where no result goes."""
    print(line, file=sys.stderr, flush=True)


def engine_cache(options: argparse.Namespace) -> EngineCache:
    """The cache that `--engines` names."""
    return EngineCache(options.engines or default_directory(), on_wait=say)


def dispatched(usage: str, stages: Mapping[str, str], words: Sequence[str] | None = None) -> int:
    """The exit status of the `main` of the stage that the first word names, token2wav without one;
    1 where a library of it is missing. stages: the module of each.
    """
    given = list(sys.argv[1:] if words is None else words)
    if not given or given[0] in ("-h", "--help"):
        print(usage, file=sys.stdout if given else sys.stderr)
        return 0 if given else WRONG_USAGE
    stage = given.pop(0) if given[0] in stages else TOKEN2WAV
    try:
        module = importlib.import_module(stages[stage])
    except ModuleNotFoundError as error:
        needed = f"this needs {error.name} for {stage}: pip install 'cosyserve-server[cpu,engines]'"
        return report_failure("", needed, FAILED, as_json="--json" in given)
    status: int = module.main(given)
    return status


def graphs_arguments(precisions: Sequence[str], default: str) -> Arguments:
    """The arguments that say which graphs of token2wav are meant. default: of --precision."""
    of_products = "of the estimator's products (default: %(default)s)"
    published = "take this flow.decoder.estimator.fp32.onnx as estimator"
    return {
        **MODEL,
        **ENGINES,
        "--precision": {"choices": precisions, "default": default, "help": of_products},
        "--published": {"type": Path, "metavar": "FILE", "help": published},
    }


def check_graphs(options: argparse.Namespace) -> None:
    """Raise WrongUsage for a published estimator in another precision than its own."""
    if options.published is not None and options.precision != "fp32":
        raise WrongUsage("--published is a float32 file: give --precision fp32")
