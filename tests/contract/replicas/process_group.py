"""The orchestrator as a program of several processes, in front of scripted stages of this one."""

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import psutil

from tests.stacks.calls import until
from tests.stacks.in_process import HERE, serving
from tests.stacks.scripted_stages import Frontend, Llm, Script, Token2Wav

_START_SECONDS = 120


@dataclass
class ProcessGroup:
    """address, probes: host:port of the service and of its health in HTTP."""

    script: Script
    program: asyncio.subprocess.Process
    address: str
    probes: str

    def members(self) -> list[psutil.Process]:
        """The processes that serve."""
        return psutil.Process(self.program.pid).children()


@contextlib.asynccontextmanager
async def process_group(script: Script, **settings: object) -> AsyncIterator[ProcessGroup]:
    """Two processes by default, both of which have begun to serve. settings: of the orchestrator.
    Leaving the block kills what has not ended.
    """
    # The methods for voices are not called.
    frontend = Frontend(script)  # type: ignore[abstract]
    stages = {"frontend": frontend, "llm": Llm(script), "token2wav": Token2Wav(script)}
    async with contextlib.AsyncExitStack() as exits:
        ports = {name: (await exits.enter_async_context(serving(name, each))).port for name, each in stages.items()}
        values = {
            "listen": HERE,
            "health_listen": HERE,
            "processes": 2,
            "warm_voices": 0,
            **{name: f"127.0.0.1:{port}" for name, port in ports.items()},
            **settings,
        }
        environ = {f"COSYSERVE_ORCHESTRATOR_{name.upper()}": str(value) for name, value in values.items()}
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.orchestrator",
            env={**os.environ, **environ},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        lines: list[str] = []
        reading = asyncio.create_task(_read(program, lines))
        try:
            await until(
                lambda: program.returncode is not None or _found(r"processes serve (\S+)", lines), _START_SECONDS
            )
            wanted = 3 * int(str(values["processes"]))
            await until(lambda: sum(" is serving" in line for line in lines) >= wanted, _START_SECONDS)
            probes = f"127.0.0.1:{_found(r'health is served on port ([0-9]+)', lines)}"
            yield ProcessGroup(script, program, _found(r"processes serve (\S+)", lines), probes)
        except BaseException:
            print("\n".join(lines))
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                program.kill()
            await program.wait()
            await reading


async def _read(program: asyncio.subprocess.Process, lines: list[str]) -> None:
    assert program.stdout
    while line := await program.stdout.readline():
        lines.append(line.decode().rstrip())


def _found(pattern: str, lines: list[str]) -> str:
    return next((match[1] for line in lines if (match := re.search(pattern, line))), "")
