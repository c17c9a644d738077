"""What connections may hold: those that say nothing, say it too slowly, say too much at once, or
are too many.
"""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.gateway.conversing import until_closed
from tests.gateway.test_limits import head, raw
from tests.gateway.test_openai_speech import PATH, body
from tests.gateway.test_websocket import SETUP
from tests.pipeline.calling import all_idle, busy, hang, hang_after_some, hook
from tests.stacks.gateway_server import Gateway
from tests.stacks.scripted_stages import Stack

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: here\r\n\r\n"
MODELS = b"GET /v1/models HTTP/1.1\r\nhost: here\r\n\r\n"
UPGRADE = (
    b"GET /v1/audio/stream HTTP/1.1\r\nhost: here\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def request(**fields: Any) -> bytes:
    content = json.dumps(body(response_format="pcm", **fields)).encode()
    return head(len(content)) + content


@contextlib.asynccontextmanager
async def opened(served: Gateway, *sent: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = served.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.writelines(sent)
        await writer.drain()
        yield reader, writer
    finally:
        writer.close()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Until the gateway closes."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def answer(reader: asyncio.StreamReader) -> bytes:
    """One with a content-length, with its head."""
    top = await reader.readuntil(b"\r\n\r\n")
    length = int(top.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return top + await reader.readexactly(length)


def error_of(received: bytes) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(received.partition(b"\r\n\r\n")[2])["error"]
    return error


@pytest.mark.start(settings={"head_seconds": 0.3})
async def test_a_connection_that_says_nothing_is_closed(served: Gateway) -> None:
    assert await raw(served) == b""


@pytest.mark.parametrize("before", [b"", HEALTH], ids=["the first", "a later one"])
@pytest.mark.start(settings={"head_seconds": 0.5})
async def test_a_head_that_does_not_end_is_refused(served: Gateway, before: bytes) -> None:
    async with opened(served, before) as (reader, writer):
        if before:
            assert (await answer(reader)).startswith(b"HTTP/1.1 200")
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: here\r\nx: ")
        received = await rest(reader)
    assert received.startswith(b"HTTP/1.1 408")
    assert error_of(received)["code"] == "head_timeout"


@pytest.mark.start(settings={"head_seconds": 0.5})
async def test_a_head_in_pieces_is_bounded_as_a_whole(served: Gateway) -> None:
    """A byte now and then does not begin the time again."""
    received = await raw(served, b"GET / HTTP/1.1\r\n", *[b"x: y\r\n"] * 6, wait=0.1)
    assert received.startswith(b"HTTP/1.1 408")


@pytest.mark.start(settings={"keep_alive_seconds": 1.0})
async def test_a_connection_is_kept_for_a_while(served: Gateway) -> None:
    async with opened(served, HEALTH) as (reader, writer):
        assert (await answer(reader)).startswith(b"HTTP/1.1 200")
        writer.write(HEALTH)
        assert (await answer(reader)).startswith(b"HTTP/1.1 200")
        assert await rest(reader) == b""


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"GET / HTTP/1.1\r\nhost: here\r\n" + b"x: y\r\n" * 200 + b"\r\n", 431, "head_too_large"),
        (b"GET / HTTP/1.1\r\nhost: here\r\nx: " + b"x" * 100_000, 431, "head_too_large"),
        (b"GET /" + b"x" * 100_000, 431, "head_too_large"),
        (UPGRADE + b"x: y\r\n" * 200 + b"\r\n", 431, "head_too_large"),
        (UPGRADE + b"x: " + b"y" * 8_100 + b"\r\n\r\n", 431, "head_too_large"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), 400, "invalid_http"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "invalid_http"),
        (head("x"), 400, "invalid_http"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version"),
    ],
    ids=["fields", "field", "path", "upgrade fields", "upgrade line", "tls", "no host", "length", "http2"],
)
@pytest.mark.start(settings={"head_seconds": 2.0})
async def test_heads_that_are_too_much_or_none_are_refused(
    served: Gateway, sent: bytes, status: int, code: str
) -> None:
    received = await raw(served, sent)
    assert (await served.http.get("/healthz")).status_code == 200
    assert received.startswith(b"HTTP/1.1 %d" % status), received[:200]
    assert error_of(received)["code"] == code


@pytest.mark.parametrize(
    "upgrade",
    [
        UPGRADE.replace(b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", b"") + b"\r\n",
        UPGRADE.replace(b"13", b"12") + b"\r\n",
        UPGRADE + b"content-length: 5\r\n\r\nhello",
        UPGRADE + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        UPGRADE.replace(b"GET", b"POST") + b"\r\n",
    ],
    ids=["no key", "version", "length", "chunked", "method"],
)
@pytest.mark.start(settings={"head_seconds": 2.0})
async def test_upgrades_that_are_none_are_refused(served: Gateway, upgrade: bytes) -> None:
    received = await raw(served, upgrade)
    assert received.startswith(b"HTTP/1.1 4"), received[:200]


@pytest.mark.start(settings={"max_connections": 3})
async def test_connections_that_wait_give_way_to_new_ones(served: Gateway) -> None:
    async with contextlib.AsyncExitStack() as held:
        idle = [(await held.enter_async_context(opened(served)))[0] for _ in range(40)]
        assert (await served.http.post(PATH, json=body(response_format="pcm"))).status_code == 200
        async with asyncio.timeout(10):
            for reader in idle[:37]:
                assert await rest(reader) == b""


@pytest.mark.start(settings={"max_connections": 3})
async def test_requests_do_not_give_way_and_health_is_served(served: Gateway, running: Stack) -> None:
    async with contextlib.AsyncExitStack() as held:
        hook(running, "token2wav", hang_after_some)
        for _ in range(3):
            await held.enter_async_context(opened(served, request()))
        await busy(running, "token2wav")
        while len(running.scripts["frontend"][0].calls) < 3:
            await asyncio.sleep(0.01)
        refused = await served.http.get("/v1/models")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many")
        assert refused.headers["retry-after"] == "1"
        assert (await served.http.get("/healthz")).status_code == 200
        # Beyond the spare places even they wait in vain.
        more = [await held.enter_async_context(opened(served)) for _ in range(100)]
        assert (await served.http.get("/healthz")).status_code == 200
        assert await rest(more[0][0]) == b""
        await held.aclose()
        await all_idle(running)
        assert (await served.http.get("/v1/models")).status_code == 200


async def test_pipelined_requests_are_answered_in_order(served: Gateway) -> None:
    async with opened(served, MODELS, HEALTH, MODELS, HEALTH) as (reader, _):
        received = [await answer(reader) for _ in range(4)]
    assert [b"cosyvoice2" in one for one in received] == [True, False, True, False]


async def test_many_pipelined_requests_are_not_held(served: Gateway, running: Stack) -> None:
    """While the first is answered, what comes behind it is left to the system."""
    async with opened(served, request()) as (_, writer):
        hook(running, "token2wav", hang)
        await busy(running, "token2wav")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                for _ in range(20_000):
                    writer.write(MODELS * 20)
                    await writer.drain()
        assert len(running.scripts["frontend"][0].calls) == 1
        (connection,) = (one for one in served.server.server_state.connections if getattr(one, "cycle", None))
        assert len(connection.conn.trailing_data[0]) <= 2 * (1 << 16)  # type: ignore[union-attr]
        assert (await served.http.get("/v1/models")).status_code == 200
        writer.transport.abort()
        await all_idle(running)


async def test_hanging_up_is_noticed_behind_what_was_sent_ahead(served: Gateway, running: Stack) -> None:
    """Nothing flows, and the connection is not read: what was pipelined hides the end of it."""
    hook(running, "token2wav", hang)
    async with opened(served, request(), MODELS * 2_000):
        await busy(running, "token2wav")
    await all_idle(running)


@contextlib.asynccontextmanager
async def websocket(served: Gateway) -> AsyncIterator[ClientConnection]:
    async with connect(f"ws://{served.address}/v1/audio/stream", max_size=None) as ws:
        yield ws


@pytest.mark.start(settings={"max_websockets": 2})
async def test_more_websockets_than_allowed_are_refused_with_an_answer(served: Gateway) -> None:
    async with websocket(served), websocket(served):
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://{served.address}/v1/audio/stream")
        assert (await served.http.get("/v1/models")).status_code == 200
    async with websocket(served):
        pass
    response = refused.value.response
    assert response.status_code == 503
    assert json.loads(response.body or b"")["error"]["code"] == "too_many"
    assert response.headers["x-request-id"]


@pytest.mark.start(settings={"websocket_idle_seconds": 0.5})
async def test_a_websocket_on_which_nothing_is_spoken_is_closed(served: Gateway) -> None:
    async with websocket(served) as ws:
        code, (message,) = await until_closed(ws)
    assert code == 1008
    assert json.loads(message)["error"]["code"] == "caller_stalled"


@pytest.mark.start(settings={"websocket_idle_seconds": 1.0})
async def test_messages_that_belong_to_no_utterance_do_not_begin_the_time_again(served: Gateway) -> None:
    async with websocket(served) as ws:
        await ws.send(json.dumps({"type": "setup", "seed": 1}))
        await ws.send(json.dumps({"type": "text", "text": "one"}))
        await ws.send(json.dumps({"type": "end"}))
        while "summary" not in str(await ws.recv()):
            pass
        with contextlib.suppress(ConnectionClosed):
            while True:
                await ws.send(json.dumps({"type": "cancel"}))
                await asyncio.sleep(0.1)
        code, (message,) = await until_closed(ws)
    assert code == 1008
    assert json.loads(message)["error"]["message"] == "nothing was spoken for 1 s"


@pytest.mark.parametrize("size", [0, 1])
async def test_a_message_of_many_fragments_is_refused(served: Gateway, size: int) -> None:
    fragment = bytes((0, 0x80 | size)) + bytes(4 + size)
    async with opened(served, UPGRADE + b"\r\n") as (reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x01\x80\0\0\0\0" + fragment * 2_000)
        await reader.readuntil(struct.pack(">H", 1009))
        assert (await served.http.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    "behind", [b"", b"\x88\x80\0\0\0\0", b"\x81\x81\0\0\0\0\xff"], ids=["alone", "close", "another"]
)
async def test_text_that_is_not_utf8_is_refused_with_its_code(
    served: Gateway, behind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(served, UPGRADE + b"\r\n") as (reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x81\x82\0\0\0\0\xed\xa0" + behind)
        received = await rest(reader)
    assert struct.pack(">H", 1007) in received or (behind[:1] == b"\x88" and received)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_fault_behind_more_messages_than_are_read_ends_the_speech(
    served: Gateway, running: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    def frame(message: dict[str, str]) -> bytes:
        content = json.dumps(message).encode()
        return bytes((0x81, 0x80 | len(content), 0, 0, 0, 0)) + content

    utterance = b"".join(map(frame, (SETUP, {"type": "text", "text": "one"}, {"type": "end"})))
    async with opened(served, UPGRADE + b"\r\n") as (reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(utterance + frame(SETUP) * 100 + b"\x81\x82\0\0\0\0\xed\xa0")
        await rest(reader)
        await all_idle(running)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_pings_of_a_peer_that_reads_nothing_are_not_read(served: Gateway) -> None:
    ping = b"\x89\xfd\0\0\0\0" + bytes(125)
    host, _, port = served.address.partition(":")
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
        await asyncio.to_thread(caller.connect, (host, int(port)))
        caller.settimeout(2)
        caller.sendall(UPGRADE + b"\r\n")
        assert b"101" in await asyncio.to_thread(caller.recv, 1 << 12)

        def flood() -> int:
            with contextlib.suppress(TimeoutError):
                for number in range(20_000):
                    caller.sendall(ping * 100)
                    sent = number
            return sent

        assert await asyncio.to_thread(flood) < 20_000 - 1
        (connection,) = (one for one in served.server.server_state.connections if hasattr(one, "queue"))
        assert connection.transport.get_write_buffer_size() < 1 << 18
        caller.settimeout(5)
        received = 0
        while received < 1 << 19:  # read again, it goes on
            received += len(await asyncio.to_thread(caller.recv, 1 << 16))


async def test_no_compression_is_agreed_on(served: Gateway) -> None:
    offer = UPGRADE + b"sec-websocket-extensions: permessage-deflate\r\n\r\n"
    async with opened(served, offer) as (reader, writer):
        assert b"deflate" not in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\xc1\x80\0\0\0\0")  # a compressed message all the same
        await reader.readuntil(struct.pack(">H", 1002))


async def test_hanging_up_is_noticed_behind_messages_that_wait(served: Gateway, running: Stack) -> None:
    hook(running, "token2wav", hang)
    async with websocket(served) as ws:
        await ws.send(json.dumps({"type": "setup", "seed": 1}))
        await ws.send(json.dumps({"type": "text", "text": "one two three"}))
        await ws.send(json.dumps({"type": "end"}))
        await busy(running, "token2wav")
        for _ in range(200):
            await ws.send(json.dumps({"type": "setup"}))
        ws.transport.abort()
        await all_idle(running)
