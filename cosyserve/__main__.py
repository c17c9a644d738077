"""`cosyserve`: the command line. Exit codes: 0 done, 1 it failed (one line on standard error says
why), 2 wrong usage.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from cosyserve.commands import (
    accept,
    bench,
    convert,
    demo,
    doctor,
    info,
    keys,
    model,
    plan,
    say,
    start,
    trace,
    up,
    verify,
    voices,
)
from cosyserve.commands.terminal import server_package
from cosyserve.commands.terminal.output import (
    FAILED,
    WRONG_USAGE,
    Parser,
    WrongUsage,
    describe_error,
    describe_os_error,
    interrupts_enabled,
    report_failure,
)
from cosyserve.errors import CosyserveError, ModelError, SettingsError
from cosyserve.host.supervision.supervisor import DeploymentFailed
from cosyserve.rpc.service_info import release


class Command(Protocol):
    """Interface of each module in cosyserve.commands."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    async def run(self, arguments: argparse.Namespace) -> int: ...


_COMMANDS: dict[str, Command] = {
    "start": start, "up": up, "say": say, "convert": convert, "voices": voices, "keys": keys, "verify": verify,
    "model": model, "doctor": doctor, "accept": accept,
    "info": info, "trace": trace, "bench": bench, "plan": plan, "demo": demo,
}  # fmt: skip
_INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = Parser(prog="cosyserve", description="Streaming text-to-speech: CosyVoice2 as gRPC microservices.")
    top.add_argument("--version", action="version", version=f"cosyserve {release()}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in _COMMANDS.items():
        command.add_arguments(
            commands.add_parser(name, help=command.HELP, description=f"{command.HELP[0].upper()}{command.HELP[1:]}.")
        )
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = sys.argv[1:] if argv is None else list(argv)
    arguments = argparse.Namespace(json="--json" in given)
    try:
        with interrupts_enabled():
            arguments = parser().parse_args(given)
            server_package.require(arguments.command)
            code = asyncio.run(_COMMANDS[arguments.command].run(arguments))
        sys.stdout.flush()
        return code
    except WrongUsage as error:
        return _fail(arguments, "", str(error), WRONG_USAGE, error.usage)
    except CosyserveError as error:
        status, message = describe_error(error, arguments)
        return _fail(arguments, status, message, FAILED, again=error.retry_after)
    except SettingsError as error:
        missing = isinstance(error, server_package.ServerMissing)
        return _fail(arguments, "", str(error), FAILED if missing else WRONG_USAGE)
    except BrokenPipeError:
        # The reader of our output has gone. Python would hit the broken pipe again when it closes
        # standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(arguments, "", describe_os_error(error), FAILED)
    except (ModelError, DeploymentFailed) as error:
        return _fail(arguments, "", str(error), FAILED)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _fail(
    arguments: argparse.Namespace, status: str, message: str, code: int, usage: str = "", again: float | None = None
) -> int:
    if getattr(arguments, "json", False):
        streaming = getattr(arguments, "output", None) == "-"
        return report_failure(status, message, code, as_json=True, to_stderr=streaming, retry_after_seconds=again)
    later = "" if again is None else f" (try again in {again:.1f} s)"
    sys.stderr.write(usage)
    return report_failure(status, message + later, code, as_json=False)


if __name__ == "__main__":
    sys.exit(main())
