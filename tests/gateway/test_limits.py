"""What callers may hold: bodies that are too large or too slow, readers that stop, connections that
say nothing.
"""

import asyncio
import json
import socket
from typing import Any

import pytest

from tests.gateway.test_openai_speech import PATH, body, hang_after_some
from tests.pipeline.calling import all_idle, busy, hook
from tests.stacks.gateway_server import Gateway, scripted_gateway

SMALL = 1 << 16


async def raw(served: Gateway, *pieces: bytes, wait: float = 0.0) -> bytes:
    """Send pieces over a connection of our own, `wait` seconds apart; what comes back until it is
    closed.
    """
    host, _, port = served.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(wait)
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def head(length: int | str, path: str = PATH, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: here", "content-type: application/json", *more]
    lines.append("transfer-encoding: chunked" if length == "chunked" else f"content-length: {length}")
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_that_is_too_large_is_refused(announced: bool) -> None:
    async with scripted_gateway({"max_body_bytes": SMALL}) as (served, _):
        content = json.dumps(body(input="x" * SMALL)).encode()
        if announced:
            response = await served.http.post(PATH, content=content, headers={"content-type": "application/json"})
        else:

            async def pieces() -> Any:
                for at in range(0, len(content), 10_000):
                    yield content[at : at + 10_000]

            response = await served.http.post(PATH, content=pieces(), headers={"content-type": "application/json"})
        assert response.status_code == 413
        assert str(SMALL) in response.json()["error"]["message"]
        assert (await served.http.get("/healthz")).status_code == 200


async def test_the_answer_to_a_large_upload_is_not_lost() -> None:
    """The caller sends all of it before it reads."""
    async with scripted_gateway() as (served, _):
        answer = await raw(served, head(8 << 20) + b"x" * (8 << 20))
    assert answer.startswith(b"HTTP/1.1 413")


async def test_a_body_that_comes_too_slowly_is_refused() -> None:
    async with scripted_gateway({"body_seconds": 0.3}) as (served, _):
        answer = await raw(served, head(1_000), b"{")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not arrive within 0.3 s" in answer


async def test_large_bodies_wait_for_their_turn() -> None:
    """Two half-sent ones take both places; a third waits for them, a small one does not."""
    async with scripted_gateway({"max_bodies": 2, "body_seconds": 1.0}) as (served, _):
        slow = [asyncio.create_task(raw(served, head(1 << 20), b"{")) for _ in range(2)]
        await asyncio.sleep(0.2)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        small = await served.http.post(PATH, json=body(response_format="pcm"))
        assert (small.status_code, loop.time() - begun < 0.8) == (200, True)
        large = await served.http.post(PATH, json=body(response_format="pcm", ignored="x" * (1 << 17)))
        assert large.status_code == 200
        assert loop.time() - begun > 0.3
        for answer in await asyncio.gather(*slow):
            assert answer.startswith(b"HTTP/1.1 408")


async def test_a_half_closed_connection_gets_no_work_done() -> None:
    async with scripted_gateway() as (served, running):
        host, _, port = served.address.partition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(head(1_000) + b"{")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await served.http.get("/healthz")).status_code == 200
        assert running.scripts["frontend"][0].calls == []


async def test_a_caller_that_stops_reading_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    long = " ".join(["everlasting"] * 200)
    async with scripted_gateway({"reader_seconds": 0.5}) as (served, running):
        host, _, port = served.address.partition(":")
        content = json.dumps(body(input=long, response_format="wav")).encode()
        with socket.socket() as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
            await asyncio.to_thread(caller.connect, (host, int(port)))
            caller.sendall(head(len(content)) + content)
            async with asyncio.timeout(20):
                while "the caller has read nothing for 0.5 s" not in caplog.text:
                    await asyncio.sleep(0.05)
            await all_idle(running)
            caller.settimeout(10)
            received = 0
            while piece := await asyncio.to_thread(caller.recv, 1 << 20):
                received += len(piece)
    assert received < 200 * 55 * 960 * 2, "everything was sent"


async def test_a_header_without_end_is_refused() -> None:
    async with scripted_gateway() as (served, _):
        answer = await raw(served, b"GET /healthz HTTP/1.1\r\nhost: here\r\nx: " + b"x" * (1 << 20))
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
        assert (await served.http.get("/healthz")).status_code == 200


async def test_more_connections_than_allowed_are_refused() -> None:
    async with scripted_gateway({"max_connections": 3}) as (served, running):
        hook(running, "token2wav", hang_after_some)
        asking = [asyncio.create_task(raw(served, request())) for _ in range(2)]
        await busy(running, "token2wav")
        await asyncio.sleep(0.2)
        answer = await raw(served, b"GET /healthz HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503")
        for one in asking:
            one.cancel()
        await asyncio.wait(asking)
        await all_idle(running)


def request() -> bytes:
    content = json.dumps(body(response_format="pcm")).encode()
    return head(len(content)) + content


async def test_idle_connections_cost_little_and_do_not_stand_in_the_way() -> None:
    async with scripted_gateway() as (served, _):
        host, _, port = served.address.partition(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
        response = await served.http.post(PATH, json=body(response_format="pcm"))
        assert response.status_code == 200
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize("path", ["/v1", "/page/../app.py", "/v1/audio", "/v1/audio/speech/", "/../etc/passwd"])
async def test_other_paths_have_an_error_object(path: str) -> None:
    async with scripted_gateway() as (served, _):
        response = await served.http.get(path)
    assert response.status_code in (404, 405, 307)
    if response.status_code != 307:
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


async def test_other_methods_are_refused() -> None:
    async with scripted_gateway() as (served, _):
        response = await served.http.delete(PATH)
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
