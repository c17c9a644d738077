"""The option that names the API key of the caller, and the key."""

import argparse
from pathlib import Path

from cosyserve.keys.presented import VARIABLE, key_of_environment, key_of_file


def add_api_key(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """--api-key-file: a key in the command line itself would be in the list of processes."""
    parser.add_argument(
        "--api-key-file",
        type=Path,
        default=default,
        metavar="FILE",
        help=f"file with the API key, for a server that wants one (default: the variable {VARIABLE})",
    )


def api_key(arguments: argparse.Namespace) -> str:
    """The key of the caller; empty if there is none. Raises SettingsError."""
    return key_of_environment() if arguments.api_key_file is None else key_of_file(arguments.api_key_file)
