"""How long a short text waits for the frontend while there are callers with long ones, through its
gRPC service in a process of its own: `python -m bench.frontend_sharing`.

Each of eight callers sends 20,000 characters of numbers again and again; "Hello." is sent once
before them and then while they run.
"""

import argparse
import asyncio
import signal
import statistics
import sys
import time
from typing import Any

import grpc

from bench.load.command_line import command
from bench.load.stack import report
from cosyserve.host.supervision.child import Child
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
        "COSYSERVE_FRONTEND_TEXT_WORKERS": str(options.workers),
        "PATH": "/usr/bin:/bin",
    }
    child = await Child.start("services.frontend", "frontend.0", address, environ, report)
    worst = 0.0
    try:
        await child.until_serving()
        for name, unit, callers in (
            ("no other", " ", 0),
            *((name, unit, options.callers) for name, unit in TEXTS.items()),
        ):
            spent = await waits_among(address, unit, callers, options.requests)
            p95 = statistics.quantiles(spent, n=20)[-1]
            worst = max(worst, p95 if name in ("no other", "decimals") else 0.0)
            crowd = f"{callers} callers with {name}" if callers else "no other caller"
            print(
                f"a short text next to {crowd}: median {statistics.median(spent):.1f} ms, p95 {p95:.1f} ms, longest "
                f"{max(spent):.1f} ms"
            )
    finally:
        child.send(signal.SIGTERM)
        await child.ended()
    return int(worst > LONGEST_P95_MILLISECONDS)


def main() -> int:
    parser = command("bench.frontend_sharing", __doc__)
    parser.add_argument("--callers", type=int, default=8, help="with long texts (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=100, help="short texts of each kind (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="COSYSERVE_FRONTEND_TEXT_WORKERS (default: %(default)s)")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
