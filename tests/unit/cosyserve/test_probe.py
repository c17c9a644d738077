"""The question that an image's health check asks."""

import asyncio
import sys

import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from cosyserve import probe
from cosyserve.rpc.health_port import HealthPort
from tests.stacks.scripted_server import listening


async def asked(*arguments: str) -> tuple[int, str]:
    """As an image asks: in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cosyserve.probe", *arguments, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, errors.decode()


async def test_it_is_well_when_it_serves_and_not_before() -> None:
    checks = health.aio.HealthServicer()
    async with listening(health_pb2_grpc.add_HealthServicer_to_server, checks) as address:
        port = int(address.rpartition(":")[2])
        await checks.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        assert await asked(str(port)) == (1, f"port {port}: NOT_SERVING\n")
        await checks.set("", health_pb2.HealthCheckResponse.SERVING)
        assert await asked(str(port)) == (0, "")


def test_a_port_without_a_server(unused_tcp_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.main([str(unused_tcp_port)]) == 1
    assert capsys.readouterr().err == f"port {unused_tcp_port}: UNAVAILABLE\n"


async def test_over_http_it_asks_the_port_for_probes() -> None:
    state = "NOT_SERVING"

    async def now() -> str:
        return state

    served = HealthPort(now)
    await served.start("127.0.0.1:0")
    port = str(served.port)
    try:
        assert await asked("--http", port) == (1, f"port {port}: NOT_SERVING\n")
        state = "SERVING"
        assert await asked("--http", port) == (0, "")
    finally:
        await served.close()
    assert await asked("--http", port) == (1, f"port {port}: Connection refused\n")


@pytest.mark.parametrize("arguments", [[], ["0"], ["65536"], ["door"], ["1", "2"], ["--http"], ["--https", "1"]])
def test_wrong_usage(arguments: list[str]) -> None:
    assert probe.main(arguments) == 2
