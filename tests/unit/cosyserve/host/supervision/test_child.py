"""A service's process ends with all that it has started, however either end of it goes."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from cosyserve.host.supervision.child import Child

_HOLDER = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; print('helper is up', flush=True); time.sleep(600)"])
time.sleep(600)
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Of a service that starts a process which outlives it, if it may."""
    (tmp_path / "holder.py").write_text(_HOLDER)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}


async def started(environ: dict[str, str]) -> Child:
    up = asyncio.Event()
    child = await Child.start(
        "holder", "holder.0", "127.0.0.1:9", environ, lambda line: up.set() if "helper is up" in line else None
    )
    await up.wait()
    return child


def is_empty(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


async def test_what_a_killed_service_had_started_ends_with_it(environ: dict[str, str]) -> None:
    child = await started(environ)
    child.send(signal.SIGKILL)
    # the helper holds the output: this would wait for it
    assert await child.ended() == -signal.SIGKILL


async def test_the_parents_end_is_the_end_of_all(environ: dict[str, str]) -> None:
    child = await started(environ)
    assert child.process.stdin is not None
    child.process.stdin.close()
    await child.process.wait()
    while not is_empty(child.process.pid):
        await asyncio.sleep(0.01)
    await child.ended()
