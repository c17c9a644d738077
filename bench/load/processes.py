"""Processes that ask a server, and end with the one that started them."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator

from bench.parts.provenance import ROOT

_LONGEST_LINE = 1 << 28
_STARTING_SECONDS = 300.0


async def line(process: asyncio.subprocess.Process) -> bytes:
    """The next line that `process` prints. Raises OSError if it ended."""
    assert process.stdout is not None
    if not (printed := await process.stdout.readline()):
        raise await _ended(process)
    return printed


async def tell(process: asyncio.subprocess.Process, job: str) -> None:
    """A line for its standard input. Raises OSError if it ended."""
    assert process.stdin is not None
    process.stdin.write(f"{job}\n".encode())
    try:
        await process.stdin.drain()
    except ConnectionError:
        raise await _ended(process) from None


async def _ended(process: asyncio.subprocess.Process) -> OSError:
    return OSError(f"a calling process ended, exit code {await process.wait()}")


@contextlib.asynccontextmanager
async def started(count: int, module: str, *words: str) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """`count` processes `python -m module words`, each of which has printed its first line; killed
    at the end. Raises OSError if one does not start.
    """
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    processes: list[asyncio.subprocess.Process] = []
    try:
        while len(processes) < count:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, *words),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LONGEST_LINE,
                env=environ,
                process_group=0,  # a Ctrl-C at the terminal reaches only the process that ends these
            )
            processes.append(process)
        try:
            async with asyncio.timeout(_STARTING_SECONDS):
                for process in processes:
                    await line(process)
        except TimeoutError:
            raise OSError(f"a calling process did not start within {_STARTING_SECONDS:.0f} s") from None
        yield processes
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
