"""What the commands of this package share: how they end, options that several have, and the choice
of a stage.

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

from cosyserve.commands.terminal.output import FAILED, WRONG_USAGE, WrongUsage, interrupts_enabled, report_failure
from cosyserve.engines.engine_cache import default_directory
from cosyserve.errors import ModelError, SettingsError

TOKEN2WAV = "token2wav"
_INTERRUPTED = 130


def command(main: Callable[[Sequence[str] | None], int]) -> Callable[..., int]:
    """`main`, with its failures reported and turned into an exit status."""

    @functools.wraps(main)
    def run(arguments: Sequence[str] | None = None) -> int:
        as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
        try:
            with interrupts_enabled():
                return main(arguments)
        except WrongUsage as error:
            if not as_json:
                sys.stderr.write(error.usage)
            return report_failure("", str(error), WRONG_USAGE, as_json=as_json)
        except (ModelError, SettingsError, OSError) as error:
            full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            hint = "; make room and run it again: what is done is kept" if full else ""
            return report_failure("", f"{error}{hint}", FAILED, as_json=as_json)
        except KeyboardInterrupt:
            return report_failure("", "stopped; the next run goes on from here", _INTERRUPTED, as_json=as_json)

    return run


def dispatched(usage: str, stages: Mapping[str, str], arguments: Sequence[str] | None) -> int:
    """The exit status of the `main` of the stage that the first word names, token2wav without one;
    1 where a library of it is missing. stages: the module of each.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
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


def add_engines(parser: argparse.ArgumentParser) -> None:
    """The option that names the engine cache."""
    parser.add_argument(
        "--engines", type=Path, default=None, metavar="DIR", help=f"engine cache (default: {default_directory()})"
    )


def add_graphs(parser: argparse.ArgumentParser, precisions: Sequence[str], default: str) -> None:
    """The arguments that say which graphs of token2wav are meant."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="model directory")
    add_engines(parser)
    parser.add_argument(
        "--precision", choices=precisions, default=default, help="of the estimator's products (default: %(default)s)"
    )
    parser.add_argument(
        "--published",
        type=Path,
        default=None,
        metavar="FILE",
        help="take this flow.decoder.estimator.fp32.onnx as estimator",
    )


def check_graphs(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Raise WrongUsage for a published estimator in another precision than its own."""
    if options.published is not None and options.precision != "fp32":
        parser.error("--published is a float32 file: give --precision fp32")
