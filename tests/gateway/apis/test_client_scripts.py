"""The scripts of tests/clients for Wyoming and jambonz, as they are run against a server."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.stacks.gateway_server import Gateway, gateway
from tests.stacks.wyoming_server import wyoming_server

SCRIPTS = Path(__file__).parents[2] / "clients"


async def rows(script: str, *addresses: str) -> list[dict[str, Any]]:
    """What it says of each call; it has to end with 0."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPTS / script), *addresses, stdout=asyncio.subprocess.PIPE
    )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    found = [json.loads(line) for line in printed.splitlines()]
    assert [row for row in found if not row["result"].startswith("ok")] == []
    assert (process.returncode, {tuple(row) for row in found}) == (0, {("client", "version", "call", "result")})
    return found


async def test_the_client_of_wyoming() -> None:
    async with (
        wyoming_server() as (_, port, running),
        gateway(f"127.0.0.1:{running.orchestrator.port}") as served,
    ):
        found = await rows("wyoming_client.py", f"127.0.0.1:{port}", f"http://{served.address}")
    assert len(found) == 7
    assert found[2]["result"].endswith("the samples of HTTP")


async def test_the_script_of_jambonz(served: Gateway) -> None:
    assert len(await rows("jambonz_scripted.py", f"http://{served.address}")) == 7
