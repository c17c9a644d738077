"""An environment for each foreign client, below build/clients: their pins contradict ours."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

from tools.clients.roster import ROOT, Environment

FOLDER = ROOT / "build" / "clients"
_READY = ".ready"
_SECONDS = 900


class NotInstalled(Exception):
    """An environment could not be made; the message ends with what the installer wrote."""


async def installed(environment: Environment) -> Path:
    """The folder of the environment, made first where it is missing or holds other versions.
    Raises NotInstalled.
    """
    folder = FOLDER / environment.name
    ready, wanted = folder / _READY, "\n".join(environment.packages)
    if not ready.exists() or ready.read_text() != wanted:
        print(f"installing {', '.join(environment.packages)}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if environment.npm:
            await _run(
                "npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", folder, *environment.packages
            )
        else:
            await _run(sys.executable, "-m", "venv", folder)
            await _run(python_of(folder), "-m", "pip", "install", "--quiet", *environment.packages)
        ready.write_text(wanted)
    return folder


def python_of(folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / "bin" / "python"


async def _run(*command: str | Path) -> None:
    # A PYTHONPATH of this process would be the environment's, too.
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = await asyncio.create_subprocess_exec(
        *command, env=plain, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(_SECONDS):
        output, _ = await process.communicate()
    if process.returncode:
        raise NotInstalled(f"{command[0]} ended with {process.returncode}: {output.decode()[-500:]}")
