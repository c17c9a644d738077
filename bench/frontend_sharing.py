"""`python -m bench.frontend_sharing`: how long a short text waits for the frontend while there are
callers with long ones, through its gRPC service in a process of its own.

Each of eight callers sends 20,000 characters of numbers again and again; "Hello." is sent once
before them and then while they run.
"""

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve.host.supervision.layout import free_ports
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1 import frontend_pb2_grpc

LONGEST_P95_MILLISECONDS = 50.0
TEXTS = {
    "decimals": "3.14159 ",
    "signs": "# @ & + = % ",
    "dotted": "1.1.1.1.",
    "money": "$1,234.56 ",
    "Chinese dates": "2024年5月17日7:30，",
}


async def short_text(stub: Any) -> float:
    """Milliseconds until "Hello." is answered."""
    begin = time.perf_counter()
    answers = [answer async for answer in stub.Analyze(pb.AnalyzeRequest(text="Hello."))]
    if not answers:
        raise ValueError("nothing came of the text")
    return (time.perf_counter() - begin) * 1000


async def long_texts(stub: Any, text: str) -> None:
    """Until it is cancelled."""
    while True:
        async for _ in stub.Analyze(pb.AnalyzeRequest(text=text)):
            pass


async def waits_among(address: str, unit: str, callers: int, requests: int) -> list[float]:
    """Milliseconds of each of `requests` short texts while `callers` send long ones of `unit`."""
    async with grpc.aio.insecure_channel(address) as busy, grpc.aio.insecure_channel(address) as calm:
        text = (unit * (20_000 // len(unit) + 1))[:20_000]
        crowd = [
            asyncio.create_task(long_texts(frontend_pb2_grpc.FrontendServiceStub(busy), text)) for _ in range(callers)
        ]
        try:
            stub = frontend_pb2_grpc.FrontendServiceStub(calm)
            await asyncio.sleep(0.5 if callers else 0.0)
            milliseconds = []
            for _ in range(requests):
                milliseconds.append(await short_text(stub))
                await asyncio.sleep(0.02)
            return milliseconds
        finally:
            for task in crowd:
                task.cancel()
            await asyncio.gather(*crowd, return_exceptions=True)


async def measure(options: argparse.Namespace) -> int:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    environ = {
        "COSYSERVE_FRONTEND_LISTEN": address,
        "COSYSERVE_FRONTEND_MODEL": str(options.model),
        "PATH": "/usr/bin:/bin",
    }
    environ["COSYSERVE_FRONTEND_TEXT_WORKERS"] = str(options.workers)
    child = await asyncio.create_subprocess_exec(sys.executable, "-m", "services.frontend", env=environ)
    worst = 0.0
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)  # type: ignore[attr-defined]
            async for health in watch:
                if health.status == health_pb2.HealthCheckResponse.SERVING:
                    break
            watch.cancel()
        for name, unit, callers in (
            ("no other", "", 0),
            *((name, unit, options.callers) for name, unit in TEXTS.items()),
        ):
            spent = await waits_among(address, unit or " ", callers, options.requests)
            p95 = statistics.quantiles(spent, n=20)[-1]
            worst = max(worst, p95 if name in ("no other", "decimals") else 0.0)
            crowd = f"{callers} callers with {name}" if callers else "no other caller"
            print(
                f"a short text next to {crowd}: median {statistics.median(spent):.1f} ms, p95 {p95:.1f} ms, longest "
                f"{max(spent):.1f} ms"
            )
    finally:
        child.terminate()
        await child.wait()
    return int(worst > LONGEST_P95_MILLISECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("models/demo"))
    parser.add_argument("--callers", type=int, default=8, help="with long texts (8)")
    parser.add_argument("--requests", type=int, default=100, help="short texts of each kind (100)")
    parser.add_argument("--workers", type=int, default=1, help="COSYSERVE_FRONTEND_TEXT_WORKERS (1)")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
