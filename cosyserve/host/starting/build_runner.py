"""Running the commands that make engines, and stopping them with all that they have started."""

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
    """Run them one after the other, their own progress on this terminal. Raises ModelError when one
    fails.
    """
    for step in steps:
        shown = shlex.join(["cosyserve", "model", *step])
        report(shown)
        # A group of its own: what a step has started, such as trtllm-build, is stopped with it.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cosyserve", "model", *step, process_group=0
        )
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                await _stop(process)
        if status != 0:
            raise ModelError(f"{shown} ended with status {status}; its own lines above say why")


async def _stop(group: asyncio.subprocess.Process) -> None:
    """As Ctrl-C does, which leaves what is finished; without mercy where that takes too long."""
    _signal(group, signal.SIGINT)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_STOP_SECONDS):
            await group.wait()
    # Also where the step itself has ended: what it had started need not have.
    _signal(group, signal.SIGKILL)
    await group.wait()


def _signal(group: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left in it
        os.killpg(group.pid, number)
