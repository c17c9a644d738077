"""Runs the commands that build engines, and stops them with all processes that they have
started.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable

from cosyserve.errors import ModelError

_STOP_SECONDS = 10.0


async def precompile(steps: list[list[str]], report: Callable[[str], None]) -> None:
    """Run the steps one after another, with their own progress on this terminal. Raises ModelError
    if one fails.
    """
    for step in steps:
        command_line = shlex.join(["cosyserve", "model", *step])
        report(command_line)
        # In a process group of its own: processes that a step has started, such as trtllm-build,
        # are stopped with it.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cosyserve", "model", *step, process_group=0
        )
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                await _stop(process)
        if status != 0:
            raise ModelError(f"{command_line} ended with status {status}; its own lines above say why")


async def _stop(group: asyncio.subprocess.Process) -> None:
    """Stop as Ctrl-C does, which keeps finished results; kill the group if that takes too long."""
    _signal(group, signal.SIGINT)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_STOP_SECONDS):
            await group.wait()
    # Also if the step itself has ended: its child processes may still run.
    _signal(group, signal.SIGKILL)
    await group.wait()


def _signal(group: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is empty
        os.killpg(group.pid, number)
