"""What the commands of the simulation share: options, and how wrong ones end."""

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from cosyserve.capacity.profile import EngineProfile
from cosyserve.capacity.report_file import default_profile, read_profile
from cosyserve.commands.terminal.output import WRONG_USAGE, Parser, WrongUsage
from cosyserve.errors import SettingsError


def command(name: str, about: str | None) -> Parser:
    """The parser of `python -m name`."""
    return Parser(prog=f"python -m {name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_report(parser: argparse.ArgumentParser) -> None:
    """--report, which `profile_of` reads."""
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="report.json of `make bench-gpu` (default: an H200)"
    )


def profile_of(options: argparse.Namespace) -> EngineProfile:
    """Raises SettingsError for a report that cannot be used."""
    return read_profile(options.report) if options.report else default_profile()


def refusing(main: Callable[[Sequence[str] | None], int]) -> Callable[..., int]:
    """`main`, which returns status 2 for options and files that cannot be used, with a line on
    standard error.
    """

    @functools.wraps(main)
    def run(given: Sequence[str] | None = None) -> int:
        try:
            return main(given)
        except WrongUsage as error:
            print(f"{error.usage}cosyserve: {error}", file=sys.stderr)
        except (SettingsError, OSError) as error:
            print(f"cosyserve: {error}", file=sys.stderr)
        return WRONG_USAGE

    return run
