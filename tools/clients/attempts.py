"""One script run to its end: the calls that it tried, and what came of each."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.clients.decoding import seconds_of
from tools.clients.environments import NotInstalled, installed, python_of
from tools.clients.roster import ROOT, Script

OK = "ok"
_SECONDS = 900
_SHARED = ROOT / "tests" / "clients"
"""What scripts share, for those in folders below."""
_SHORTEST = 0.4
"""Seconds of sound in a file of an example."""


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
        return self.result == OK or self.result.startswith(f"{OK},")

    @property
    def failed(self) -> bool:
        return not self.succeeded


async def attempts(script: Script, addresses: Mapping[str, str]) -> list[Attempt]:
    """What the script tried at a server. addresses: by name, as in `Script.over`. One that ends
    with an error although no call failed, or that says nothing, is a failed call of its own.
    """
    return await (_example(script, addresses["http"]) if script.files else _client(script, addresses))


async def _client(script: Script, addresses: Mapping[str, str]) -> list[Attempt]:
    try:
        status, output, last = await _run([*await _command(script), *(addresses[name] for name in script.over)])
    except _NOT_RUN as error:
        return [_failure(script, f"{type(error).__name__}: {error}")]
    tried = [attempt for line in output.splitlines() if (attempt := _read(line, script)) is not None]
    unexplained = status and not any(attempt.failed for attempt in tried)
    return [*tried, _failure(script, f"exit status {status}: {last}")] if unexplained or not tried else tried


async def _example(script: Script, address: str) -> list[Attempt]:
    """Runs in a folder of its own; every file that it is to write has to hold sound."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            status, _, last = await _run(await _command(script), {"COSYSERVE_URL": address}, folder)
            if status:
                return [_failure(script, f"exit status {status}: {last}")]
            seconds = [await asyncio.to_thread(seconds_of, Path(folder) / name) for name in script.files]
        except _NOT_RUN as error:
            return [_failure(script, f"{type(error).__name__}: {error}")]
    if min(seconds) < _SHORTEST:
        return [_failure(script, f"only {min(seconds):.2f} s of sound")]
    found = ", ".join(f"{name} of {length:.1f} s" for name, length in zip(script.files, seconds, strict=True))
    version = ", ".join(script.environment.packages) if script.environment else ""
    return [Attempt(script.path, version, "run", f"{OK}, {found}", script.path)]


_NOT_RUN = (NotInstalled, TimeoutError, OSError, ValueError)


def _failure(script: Script, result: str) -> Attempt:
    return Attempt(script.name, "", "run", result, script.path)


async def _run(
    command: list[str | Path], variables: Mapping[str, str] | None = None, folder: str | None = None
) -> tuple[int, str, str]:
    """Exit status, output, and the last line of the errors. Raises TimeoutError."""
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**plain, "PYTHONPATH": str(_SHARED), **(variables or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    last = (errors.decode(errors="replace").strip().splitlines() or ["no line of error"])[-1]
    return process.returncode or 0, output.decode(errors="replace"), last[-300:]


async def _command(script: Script) -> list[str | Path]:
    if not script.is_there:
        raise OSError(f"{script.path} does not exist")
    if script.environment is None:
        return ["bash" if script.file.suffix == ".sh" else sys.executable, script.file]
    folder = await installed(script.environment)
    if script.environment.npm:
        # Node.js looks for packages from the folder of the script upwards.
        return ["node", await asyncio.to_thread(shutil.copy, script.file, folder)]
    return [python_of(folder), script.file]


def _read(line: str, script: Script) -> Attempt | None:
    """A call; None for other lines, which clients print on their own account."""
    try:
        row = json.loads(line)
        return Attempt(row["client"], row["version"], row["call"], row["result"], script.path)
    except (ValueError, KeyError, TypeError):
        return None
