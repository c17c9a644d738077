"""Reports the failure of a command: one line on standard error, or with --json one object in place
of its result.
"""

import argparse
import json
import sys
from typing import NoReturn

from cosyserve.commands.terminal.arguments import SERVER
from cosyserve.commands.terminal.output import plain
from cosyserve.errors import CosyserveError, NotFound

FAILED, WRONG_USAGE = 1, 2


class WrongUsage(Exception):
    """Invalid options or arguments."""

    def __init__(self, message: str, usage: str = "") -> None:
        """usage: shown above the message, where there is one."""
        super().__init__(message)
        self.usage = usage


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises WrongUsage where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise WrongUsage(message, self.format_usage())


def report_failure(
    status: str, message: str, code: int, *, as_json: bool, to_stderr: bool = False, **more: object
) -> int:
    """Print a failure; returns `code`. status: name of the gRPC status, or empty. more: further
    fields of the JSON object.
    """
    if as_json:
        error = {
            "status": status,
            "message": message,
            **{key: value for key, value in more.items() if value is not None},
        }
        print(json.dumps({"error": plain(error)}), file=sys.stderr if to_stderr else sys.stdout)
    else:
        print(f"cosyserve: {status}: {message}" if status else f"cosyserve: {message}", file=sys.stderr)
    return code


def describe_error(error: CosyserveError, arguments: argparse.Namespace) -> tuple[str, str]:
    """Status and text of a server error, with a helpful command if there is one."""
    message = " ".join(error.message.split())
    if isinstance(error, NotFound) and "voice" in message:
        server = getattr(arguments, "server", SERVER)
        message += f" (cosyserve voices list{'' if server == SERVER else f' --server {server}'} names all voices)"
    return error.code.name, message


def describe_os_error(error: OSError) -> str:
    """The message of an operating system error without the wording of Python."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason
