"""What a command prints besides audio, and how it ends: results, one line on standard error for a
failure (with --json one object in place of the result), Ctrl-C.

Numbers are plain decimals: no exponent, no digits that binary fractions add.
"""

import argparse
import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from cosyserve.commands.terminal.arguments import SERVER
from cosyserve.errors import CosyserveError, NotFound, Unauthenticated
from cosyserve.settings import API_KEY

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


def printable(text: str) -> str:
    """`text`, which comes from someone else, with blanks for what a terminal would obey."""
    return "".join(character if character.isprintable() else " " for character in text)


def print_json(value: Any, *, to_stderr: bool = False) -> None:
    """Print one JSON object in one line."""
    print(json.dumps(plain(value)), file=sys.stderr if to_stderr else sys.stdout)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of cells, the titles first, in columns as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


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
        print_json({"error": error}, to_stderr=to_stderr)
    else:
        print(f"cosyserve: {status}: {message}" if status else f"cosyserve: {message}", file=sys.stderr)
    return code


def describe_error(error: CosyserveError, arguments: argparse.Namespace) -> tuple[str, str]:
    """Status and text of a server error, with a helpful command if there is one."""
    message = " ".join(error.message.split())
    if isinstance(error, NotFound) and "voice" in message:
        server = getattr(arguments, "server", SERVER)
        message += f" (cosyserve voices list{'' if server == SERVER else f' --server {server}'} names all voices)"
    if isinstance(error, Unauthenticated):
        message += f" (--api-key-file FILE or the variable {API_KEY} gives it)"
    return error.code.name, message


def describe_os_error(error: OSError) -> str:
    """The message of an operating system error without the wording of Python."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


_DECIMALS = 6


def number(value: float) -> str:
    """For people: a whole number without a point, others with three decimals at most, those below a
    thousandth with six.
    """
    decimals = 3 if abs(value) >= 0.001 else _DECIMALS
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def plain(value: Any) -> Any:
    """For JSON: each float inside `value` rounded to a millionth, a whole number of them as an
    integer.
    """
    if isinstance(value, float):
        rounded = round(value, _DECIMALS)
        return int(rounded) if rounded.is_integer() and abs(rounded) >= 1e6 else rounded
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@contextlib.contextmanager
def interrupts_enabled() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt while the block runs, also if the process inherited that it
    is ignored.

    A shell without job control, nohup and most job runners start programs with SIGINT ignored;
    Python then installs no handler of its own, and SIGINT has no effect. Does nothing outside the
    main thread, because only that may set handlers.
    """
    ignored = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    )
    if ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
