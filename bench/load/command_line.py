"""What the commands of the bench have in common: options, errors, and the costs of a stage as a
table and a file.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grpc

from bench.parts.part import ResultsFile
from bench.parts.provenance import machine
from bench.reports.tables import columns
from cosyserve.errors import CosyserveError, ModelError, SettingsError
from cosyserve.host.supervision.supervisor import DeploymentFailed


def command(name: str, about: str | None, *, model: bool = True) -> argparse.ArgumentParser:
    """The parser of `python -m name`, with --model if it measures one that is given."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if model:
        parser.add_argument(
            "--model", type=Path, default=Path("models/demo"), help="model directory (default: %(default)s)"
        )
    return parser


def add_stack_options(parser: argparse.ArgumentParser, device: str | None = None) -> None:
    """--device and --set of services that are started."""
    parser.add_argument("--device", default=device, help=f"device of the engines (default: {device or 'automatic'})")
    parser.add_argument(
        "--set",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of a service; repeatable",
    )


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("COSYSERVE_"):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form COSYSERVE_NAME=value")
    return name, value


@contextmanager
def user_errors(name: str) -> Iterator[None]:
    """An error that a user can act on ends the process with a line on standard error and status
    1.
    """
    try:
        yield
    except (CosyserveError, DeploymentFailed, ModelError, SettingsError, ValueError, OSError, grpc.RpcError) as error:
        sys.exit(f"{name}: {error}")


def cost_command(name: str, about: str | None, *, model: bool = True) -> argparse.ArgumentParser:
    """The parser of a command that measures one stage on a CPU. model: as in `command`."""
    parser = command(name, about, model=model)
    parser.add_argument("--threads", type=int, default=1, help="threads of one operation (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go as well")
    return parser


def show(name: str, measure: Callable[[], Sequence[Any]], path: Path | None) -> int:
    """Print what `measure` returns, dataclasses of one kind, and keep it in `path`."""
    with user_errors(name):
        costs = [asdict(cost) for cost in measure()]
    print("\n".join(columns(costs)))
    results = ResultsFile(path)
    results.update(machine=machine())
    results["costs"] = costs
    return 0
