"""What one call costs at least on this machine: `grpc.aio` between two processes, with nothing
around it.
"""

import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc

_UNARY, _STREAM = "/floor.Floor/Unary", "/floor.Floor/Stream"
_WARM_UP = 50


@dataclass(frozen=True)
class Floor:
    """Milliseconds of a call that carries bytes and answers with a byte, on an open connection.
    hop: of a message and its answer on a stream that is open already.
    """

    payload_bytes: int
    unary: float
    stream: float
    hop: float


async def floors(calls: int, payloads: tuple[int, ...] = (100, 150_000)) -> list[Floor]:
    """Medians of so many calls for each size of the message that is sent."""
    async with _server() as address, grpc.aio.insecure_channel(address) as channel:
        return [await _floor(channel, b"x" * size, calls) for size in payloads]


async def _floor(channel: grpc.aio.Channel, payload: bytes, calls: int) -> Floor:
    unary: Any = channel.unary_unary(_UNARY)
    stream: Any = channel.stream_stream(_STREAM)

    async def once() -> None:
        await unary(payload)

    async def opened() -> None:
        call = stream()
        await call.write(payload)
        await call.read()
        call.cancel()

    open_call: Any = stream()

    async def hop() -> None:
        await open_call.write(payload)
        await open_call.read()

    figures = [await _median(work, calls) for work in (once, opened, hop)]
    open_call.cancel()
    return Floor(len(payload), *figures)


async def _median(work: Callable[[], Awaitable[None]], calls: int) -> float:
    spent = []
    for _ in range(_WARM_UP + calls):
        begun = time.perf_counter()
        await work()
        spent.append(1000 * (time.perf_counter() - begun))
    return round(statistics.median(spent[_WARM_UP:]), 3)


@contextlib.asynccontextmanager
async def _server() -> AsyncIterator[str]:
    """A process that answers; ends with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __spec__.name, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


class _Answering(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        if handler_call_details.method == _UNARY:
            return grpc.unary_unary_rpc_method_handler(_answer)
        return grpc.stream_stream_rpc_method_handler(_answer_each)


async def _answer(request: bytes, context: object) -> bytes:
    return request[:1]


async def _answer_each(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request[:1]


async def _serve() -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Answering(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0.0)


if __name__ == "__main__":
    asyncio.run(_serve())
