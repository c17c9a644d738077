"""One script run to its end: the calls that it tried, and what came of each."""

import asyncio
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.clients.environments import NotInstalled, installed, python_of
from tools.clients.roster import AWAITED, Script

NOT_THERE = "not there yet"
_SECONDS = 600


@dataclass(frozen=True)
class Attempt:
    """result: "ok", what was found behind a comma; else what went wrong. script: that tried it."""

    client: str
    version: str
    call: str
    result: str
    script: str

    @property
    def succeeded(self) -> bool:
        return self.result == "ok" or self.result.startswith("ok,")

    @property
    def failed(self) -> bool:
        return not self.succeeded and self.result != NOT_THERE


async def attempts(script: Script, address: str) -> list[Attempt]:
    """What the script tried at a gateway. One that ends with an error although no call failed, or
    that says nothing, is a failed call of its own.
    """
    if not script.is_there:
        result = NOT_THERE if script.name in AWAITED else f"{script.path} does not exist"
        return [Attempt(script.name, "", "", result, script.path)]
    try:
        command = await _command(script)
    except (NotInstalled, TimeoutError, OSError) as error:
        return [Attempt(script.name, "", "install", f"{type(error).__name__}: {error}", script.path)]
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = await asyncio.create_subprocess_exec(
        *command, address, env=plain, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return [Attempt(script.name, "", "run", f"not over after {_SECONDS} s", script.path)]
    tried = [attempt for line in output.decode().splitlines() if (attempt := _read(line, script)) is not None]
    unexplained = process.returncode and not any(attempt.failed for attempt in tried)
    if unexplained or not tried:
        last = (errors.decode(errors="replace").strip().splitlines() or ["nothing was printed"])[-1]
        tried.append(Attempt(script.name, "", "run", f"exit status {process.returncode}: {last[-300:]}", script.path))
    return tried


async def _command(script: Script) -> list[str | Path]:
    if script.environment is None:
        return [sys.executable, script.file]
    folder = await installed(script.environment)
    if script.environment.npm:
        # Node.js looks for packages from the folder of the script upwards.
        copied = await asyncio.to_thread(shutil.copy, script.file, folder)
        return ["node", copied]
    return [python_of(folder), script.file]


def _read(line: str, script: Script) -> Attempt | None:
    """A call; None for other lines, which clients print on their own account."""
    try:
        row = json.loads(line)
        return Attempt(row["client"], row["version"], row["call"], row["result"], script.path)
    except (ValueError, KeyError, TypeError):
        return None
