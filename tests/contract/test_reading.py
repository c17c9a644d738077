"""Nothing stays of a read whose reader is cancelled, not even of a message or an error that comes
at the same moment.
"""

import asyncio
import ctypes
import gc
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import grpc
import pytest
from cosyserve.rpc.calls import answer, messages, read

MESSAGE = bytes(100_000)
READS, WARM_UP = 20, 5
ENDLESS, FAILS = b"endless", b"fails"


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in names]


def allocated() -> int:
    """Bytes that malloc has handed out and not got back."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        pytest.skip("the C library does not tell what is allocated")
    mallinfo2.restype = _Mallinfo
    gc.collect()
    found = mallinfo2()
    return int(found.uordblks + found.hblkhd)


class Peer:
    """A server in threads of its own: it answers while the event loop stands still."""

    def __init__(self, channel: grpc.aio.Channel, due: threading.Semaphore) -> None:
        self._channel = channel
        self._due = due
        """To be released for each message."""

    def stream(self, request: bytes = b"") -> grpc.aio.UnaryStreamCall[bytes, bytes]:
        method: Any = self._channel.unary_stream("/test/Stream")
        return cast("grpc.aio.UnaryStreamCall[bytes, bytes]", method(request))

    def unary(self, request: bytes = b"") -> grpc.aio.UnaryUnaryCall[bytes, bytes]:
        method: Any = self._channel.unary_unary("/test/Unary")
        return cast("grpc.aio.UnaryUnaryCall[bytes, bytes]", method(request))

    def give(self) -> None:
        self._due.release()

    async def left_as_it_comes(self, reading: Awaitable[Any]) -> None:
        """Cancel `reading` when the message is here and the event loop does not know it yet."""
        task = asyncio.ensure_future(reading)
        for _ in range(10):
            await asyncio.sleep(0)
        self.give()
        time.sleep(0.02)  # noqa: ASYNC251 - the event loop has to stand still
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    due = threading.Semaphore(0)

    def stream(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield b"first"
        due.acquire()
        yield MESSAGE
        over = threading.Event()
        if request == ENDLESS and context.add_callback(over.set):
            over.wait()

    def unary(request: bytes, context: grpc.ServicerContext) -> bytes:
        due.acquire()
        if request == FAILS:
            context.abort(grpc.StatusCode.DATA_LOSS, "broken")
        return MESSAGE

    handlers: dict[str, Any] = {
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
    }
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Peer(channel, due)
        server.stop(None).wait()


async def grown(once: Callable[[], Awaitable[None]]) -> int:
    """Bytes that `READS` times `once` leave behind."""
    for _ in range(WARM_UP):
        await once()
    before = allocated()
    for _ in range(READS):
        await once()
    return allocated() - before


async def test_a_message_that_comes_when_its_reader_is_cancelled_is_freed(peer: Peer) -> None:
    async def once() -> None:
        call = peer.stream(ENDLESS)
        assert await read(call) == b"first"
        await peer.left_as_it_comes(read(call))
        assert await call.code() is grpc.StatusCode.CANCELLED

    assert await grown(once) < READS * len(MESSAGE) / 2


async def test_an_answer_that_comes_when_its_asker_is_cancelled_is_freed(peer: Peer) -> None:
    async def once() -> None:
        call = peer.unary()
        await peer.left_as_it_comes(answer(call))
        assert await call.code() is grpc.StatusCode.OK

    assert await grown(once) < READS * len(MESSAGE) / 2


async def test_an_asker_who_is_cancelled_hangs_up_after_a_while(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosyserve.rpc.calls._LATE_SECONDS", 0.0)
    call = peer.unary()
    asking = asyncio.ensure_future(answer(call))
    await asyncio.sleep(0)
    asking.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED
    peer.give()


async def test_an_error_that_comes_when_its_asker_is_gone_is_not_reported_as_forgotten(peer: Peer) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    call = peer.unary(FAILS)
    await peer.left_as_it_comes(answer(call))
    assert await call.code() is grpc.StatusCode.DATA_LOSS
    for _ in range(10):
        await asyncio.sleep(0)
    gc.collect()
    assert reported == []


async def test_all_messages_are_read(peer: Peer) -> None:
    peer.give()
    assert [message async for message in messages(peer.stream())] == [b"first", MESSAGE]
