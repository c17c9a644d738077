"""`cosyserve`: the command line. Exit codes: 0 done, 1 it failed (one line on standard error says why), 2 wrong usage."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Protocol

from cosyserve.commands import convert, demo, doctor, info, model, say, start, up, verify, voices
from cosyserve.errors import CosyserveError, ModelError, SettingsError
from cosyserve.interrupts import heeded
from cosyserve.supervision.stack import StackFailed


class Command(Protocol):
    """What each module of cosyserve.commands is."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    async def run(self, arguments: argparse.Namespace) -> int: ...


_COMMANDS: dict[str, Command] = {
    "start": start, "up": up, "say": say, "convert": convert, "voices": voices, "verify": verify, "model": model, "doctor": doctor,
    "info": info, "demo": demo,
}  # fmt: skip
_INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(prog="cosyserve", description="Streaming text-to-speech: CosyVoice2 as gRPC microservices.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in _COMMANDS.items():
        command.add_arguments(commands.add_parser(name, help=command.HELP, description=f"{command.HELP[0].upper()}{command.HELP[1:]}."))
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = parser().parse_args(argv)
    try:
        with heeded():
            return asyncio.run(_COMMANDS[arguments.command].run(arguments))
    except CosyserveError as error:
        again = "" if error.retry_after is None else f" (try again in {error.retry_after:.1f} s)"
        return _fail(f"{error.code.name}: {' '.join(error.message.split())}{again}")
    except SettingsError as error:
        return _fail(str(error), 2)
    except (ModelError, StackFailed, OSError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _INTERRUPTED


def _fail(message: str, code: int = 1) -> int:
    print(f"cosyserve: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
