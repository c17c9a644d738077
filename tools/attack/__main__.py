"""`python -m tools.attack [--server HOST:PORT [--door PID] [--http HOST:PORT [--gateway PID]]]
[--only NAME ...]`: one line an attack, exit status 1 when a limit is broken.

Without a server one is started, with engines that only seem to speak (--backend fake), so that what
is measured is the serving.
"""

import argparse
import asyncio
import contextlib
import os
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from cosyserve.host.supervision.supervisor import LocalDeployment, local_deployment
from tools.attack.connection_attacks import (
    empty_calls,
    empty_streams,
    half_sent,
    hang_ups,
    many_connections,
    never_reading,
)
from tools.attack.http_connection_attacks import (
    half_closed,
    http_hang_ups,
    http_never_reading,
    idle_connections,
    many_websockets,
    slow_bodies,
    slow_heads,
    websocket_floods,
)
from tools.attack.http_message_attacks import body_bombs, form_bombs, head_bombs, pipelined
from tools.attack.message_attacks import empty_chunks, huge_fields, number_texts, undecodable
from tools.attack.target import Finding, Target

Attack = Callable[[Target], Awaitable[Finding]]
ATTACKS: dict[str, Attack] = {
    "half-sent": half_sent,
    "connections": many_connections,
    "empty-streams": empty_streams,
    "empty-calls": empty_calls,
    "number-texts": number_texts,
    "undecodable": undecodable,
    "empty-chunks": empty_chunks,
    "huge-fields": huge_fields,
    "hang-ups": hang_ups,
    "never-reading": never_reading,
}
HTTP_ATTACKS: dict[str, Attack] = {
    "http-idle": idle_connections,
    "http-slow-heads": slow_heads,
    "http-slow-bodies": slow_bodies,
    "http-half-closed": half_closed,
    "http-head-bombs": head_bombs,
    "http-body-bombs": body_bombs,
    "http-form-bombs": form_bombs,
    "http-pipelined": pipelined,
    "http-never-reading": http_never_reading,
    "http-hang-ups": http_hang_ups,
    "websockets-held": many_websockets,
    "websocket-floods": websocket_floods,
}
ALL = {**ATTACKS, **HTTP_ATTACKS}
_MOST_SECONDS = 120.0
_ALL_ADMITTED = {"COSYSERVE_ORCHESTRATOR_ADAPTIVE_LIMIT": "off"}


async def attacked(target: Target, names: Sequence[str]) -> dict[str, Finding]:
    """Run these attacks one after the other, printing a line for each. One that fails or does not
    end is a broken limit.
    """
    findings = {}
    for name in names:
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                finding = await ALL[name](target)
        except Exception as error:
            finding = Finding(
                f"ended with {type(error).__name__}: {error}", f"an answer within {_MOST_SECONDS:.0f} s", held=False
            )
        findings[name] = finding
        print(
            f"{'ok    ' if finding.held else 'BROKEN'} {name:<18} {finding.seen} (limit: {finding.limit})", flush=True
        )
    return findings


@contextlib.asynccontextmanager
async def _target(arguments: argparse.Namespace) -> AsyncIterator[Target]:
    if arguments.server is not None:
        yield Target(arguments.server, arguments.door, arguments.http, arguments.gateway)
        return
    async with local_deployment(
        arguments.model, backend=arguments.backend, http="127.0.0.1:0", environ={**os.environ, **_ALL_ADMITTED}
    ) as stack:
        yield target_of(stack)


def target_of(stack: LocalDeployment) -> Target:
    """All of it, with the processes of its doors."""
    pids = {child.name: child.pid for child in stack.children}
    return Target(stack.address, pids["orchestrator"], stack.http, pids.get("gateway"))


async def run(arguments: argparse.Namespace) -> int:
    async with _target(arguments) as target:
        findings = await attacked(target, arguments.only or list(ALL if target.http else ATTACKS))
    broken = [name for name, finding in findings.items() if not finding.held]
    print(
        f"{len(findings) - len(broken)} of {len(findings)} limits "
        f"hold{': broken are ' + ', '.join(broken) if broken else ''}"
    )
    return 1 if broken else 0


def main(given: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.attack", description=__doc__)
    parser.add_argument("--server", help="host:port of the public door of a running stack")
    parser.add_argument(
        "--door", type=int, help="process id of its orchestrator, when it runs here: its memory is looked at"
    )
    parser.add_argument("--http", help="host:port of its gateway, if it has one")
    parser.add_argument("--gateway", type=int, help="process id of the gateway, when it runs here")
    parser.add_argument("--only", nargs="+", choices=ALL, metavar="NAME", help=f"some of {', '.join(ALL)}")
    parser.add_argument(
        "--model", type=Path, default=Path("models/demo"), help="of the stack that is started without --server"
    )
    parser.add_argument("--backend", default="fake", help="of its engines: fake or torch")
    arguments = parser.parse_args(given)
    _allow_files()
    return asyncio.run(run(arguments))


def _allow_files() -> None:
    """Thousands of connections are as many open files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
