"""A process that is to end and does not: its log says what it waits for."""

import asyncio
import os
import signal
import sys
from pathlib import Path

PROGRAM = """
import asyncio, sys
from cosyserve.rpc import process_end
from cosyserve.rpc.server import run
from cosyserve.rpc.server_settings import ServerSettings

process_end.LATE_SECONDS = 0.5 if sys.argv[1] == "hangs" else 60.0

async def close():
    if sys.argv[1] == "hangs":
        await asyncio.create_task(never_over())

async def never_over():
    await asyncio.Event().wait()

async def load(service):
    return close

sys.exit(run("cosyserve.v1.LlmService", "COSYSERVE_TEST_", ServerSettings, lambda settings: load))
"""


async def ended(way: str) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader]:
    """As soon as it serves."""
    settings = {"COSYSERVE_TEST_LISTEN": "127.0.0.1:0", "COSYSERVE_TEST_DRAIN_SECONDS": "0"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        way,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), **settings},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    await process.stderr.readuntil(b"is loaded")
    process.send_signal(signal.SIGTERM)
    return process, process.stderr


async def test_what_keeps_a_process_is_in_its_log() -> None:
    process, log = await ended("hangs")
    try:
        said = b""
        async with asyncio.timeout(60):
            while b"still has" not in said or b"most recent call first" not in said:
                said += await log.readline()
    finally:
        process.kill()
        await process.wait()
    assert b"has no more calls" in said
    assert b"1 in Event.wait (" in said


async def test_one_that_ends_says_nothing_of_it() -> None:
    process, log = await ended("ends")
    async with asyncio.timeout(60):
        said, status = await log.read(), await process.wait()
    assert status == 0
    assert b"still has" not in said
    assert b"most recent call first" not in said
