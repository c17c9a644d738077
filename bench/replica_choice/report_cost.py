"""What the reports of the load cost: a server and its watchers in one process, on loopback."""

import asyncio
import time
from typing import cast

import grpc

from cosyserve.rpc.calls import messages
from cosyserve.rpc.load.reported import CallCounts
from cosyserve.rpc.service_info import InfoServicer
from cosyserve.rpc.transport import server_options
from cosyserve.v1 import info_pb2, info_pb2_grpc

_CHANGE_SECONDS = 0.02


async def cpu_per_report(watchers: int, seconds: float) -> float:
    """Seconds of CPU for each report, both sides together: more than without watchers, who all get
    as many as the service gives.
    """
    calls = CallCounts()
    server = grpc.aio.server(options=server_options(1 << 20, 64, 64))
    info_pb2_grpc.add_InfoServiceServicer_to_server(InfoServicer("bench", (), calls), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    alone, _ = await _measured(calls, [], seconds)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = cast("info_pb2_grpc.InfoServiceAsyncStub", info_pb2_grpc.InfoServiceStub(channel))
        busy, reports = await _measured(calls, [stub] * watchers, seconds)
    await server.stop(None)
    return (busy - alone) / max(reports, 1)


async def _measured(
    calls: CallCounts, stubs: "list[info_pb2_grpc.InfoServiceAsyncStub]", seconds: float
) -> tuple[float, int]:
    """Seconds of CPU, and the number of reports."""
    reports = 0

    async def watch(stub: "info_pb2_grpc.InfoServiceAsyncStub") -> None:
        nonlocal reports
        async for _ in messages(stub.WatchLoad(info_pb2.WatchLoadRequest(min_interval_milliseconds=1))):
            reports += 1

    watching = [asyncio.create_task(watch(stub)) for stub in stubs]
    end, before = time.monotonic() + seconds, time.process_time()
    while time.monotonic() < end:
        with calls.counted(""):
            await asyncio.sleep(_CHANGE_SECONDS)
        await asyncio.sleep(_CHANGE_SECONDS)
    used = time.process_time() - before
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    return used, reports
