"""The status with which `python -m services.gateway` ends at a signal."""

import asyncio
import os
import re
import signal
import sys

import httpx2
import pytest


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_drained_is_status_0(how: signal.Signals) -> None:
    """Not the death by the signal, which a service manager takes for a failure."""
    environ = {
        **os.environ,
        "COSYSERVE_GATEWAY_ORCHESTRATOR": "127.0.0.1:9",
        "COSYSERVE_GATEWAY_LISTEN": "127.0.0.1:0",
        "COSYSERVE_GATEWAY_WYOMING_LISTEN": "127.0.0.1:0",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.gateway", env=environ, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        while (found := re.search(rb"listens on port (\d+)", await process.stderr.readline())) is None:
            pass
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{int(found[1])}", timeout=20) as http:
            assert (await http.get("/healthz")).status_code == 200
            process.send_signal(how)
            log, status = await process.stderr.read(), await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    assert status == 0, log.decode()
    assert b"Traceback" not in log, log.decode()
