"""What requests may hold: bodies that are too large, too slow, compressed or bombs, and readers
that stop.
"""

import asyncio
import gzip
import json
import socket
from typing import Any

import pytest

from tests.gateway.test_openai_speech import PATH, body
from tests.pipeline.calling import all_idle
from tests.stacks.gateway_server import Gateway
from tests.stacks.scripted_stages import Stack

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
@pytest.mark.start(settings={"max_body_bytes": SMALL})
async def test_a_body_that_is_too_large_is_refused(served: Gateway, announced: bool) -> None:
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


async def test_the_answer_to_a_large_upload_is_not_lost(served: Gateway) -> None:
    """The caller sends all of it before it reads."""
    assert (await raw(served, head(8 << 20) + b"x" * (8 << 20))).startswith(b"HTTP/1.1 413")


@pytest.mark.start(settings={"body_seconds": 0.3})
async def test_a_body_that_comes_too_slowly_is_refused(served: Gateway) -> None:
    answer = await raw(served, head(1_000), b"{")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not arrive within 0.3 s" in answer


@pytest.mark.start(settings={"max_bodies": 2})
async def test_large_bodies_wait_for_their_turn(served: Gateway, running: Stack) -> None:
    """Two half-sent ones take both places; a third waits for one of them, a small one does not."""
    large = body(response_format="pcm", ignored="x" * (1 << 17))
    slow = [asyncio.create_task(raw(served, head(1 << 20), b"{", wait=60)) for _ in range(2)]
    await asyncio.sleep(0.3)
    waiting = asyncio.create_task(served.http.post(PATH, json=large))
    assert (await served.http.post(PATH, json=body(response_format="pcm"))).status_code == 200
    calls = len(running.scripts["frontend"][0].calls)
    assert not waiting.done()
    slow.pop().cancel()
    assert (await waiting).status_code == 200
    assert len(running.scripts["frontend"][0].calls) == calls + 1
    slow.pop().cancel()


@pytest.mark.start(settings={"max_bodies": 1, "body_seconds": 1.0})
async def test_a_large_body_without_a_turn_is_refused(served: Gateway) -> None:
    slow = [asyncio.create_task(raw(served, head(1 << 20), b"{")) for _ in range(3)]
    statuses = sorted([(await one)[:12] for one in slow])
    assert statuses[0] == b"HTTP/1.1 408"
    assert statuses[-1] == b"HTTP/1.1 503"


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip"])
async def test_compressed_bodies_are_refused(served: Gateway, encoding: str) -> None:
    content = gzip.compress(json.dumps(body()).encode())
    headers = {"content-type": "application/json", "content-encoding": encoding}
    response = await served.http.post(PATH, content=content, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (415, "compressed_body")


@pytest.mark.parametrize("depth", [99, 100, 990, 100_000])
@pytest.mark.parametrize("field", ["voice", "input", "other"])
async def test_json_may_be_deep(served: Gateway, field: str, depth: int) -> None:
    """Whatever reads or quotes it is at most a refusal; beyond 100, it is not read at all."""
    content = f'{{"input": "one", "{field}": {"[" * depth}{"]" * depth}}}'.encode()
    response = await served.http.post(PATH, content=content, headers={"content-type": "application/json"})
    if field == "other" and depth == 99:
        assert response.status_code == 200
        return
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert ("the body nests" in error["message"]) == (depth >= 100)


@pytest.mark.parametrize("text", ["[" * 120, '"[[" [', '\\"[' * 120, "say [[" + "]" * 120])
async def test_brackets_in_texts_are_not_nesting(served: Gateway, text: str) -> None:
    response = await served.http.post(PATH, json=body(input="one " + text))
    assert response.status_code == 200, response.text


def form(*parts: tuple[str, bytes]) -> bytes:
    return b"".join(b"--b\r\n" + head.encode() + b"\r\n\r\n" + part + b"\r\n" for head, part in parts) + b"--b--\r\n"


FIELD = 'content-disposition: form-data; name="a"'
FILE = 'content-disposition: form-data; name="audio_sample"; filename="a.wav"'
BOMBS = {
    "fields": form(*[(FIELD, b"")] * 50_000),
    "files": form(*[(FILE, b"")] * 50_000),
    "long name": form((f'content-disposition: form-data; name="{"n" * 1_000_000}"', b"x")),
    "long value": form((FIELD, b"v" * 5_000_000)),
    "part of many headers": form((FIELD + "\r\nx: y" * 100_000, b"x")),
    "nested": form((FIELD + "\r\ncontent-type: multipart/mixed; boundary=c", b"--c\r\n\r\nx\r\n--c--" * 10_000)),
    "line ends": b"--b\r\n" + (FIELD + "\r\n\r\n").encode() + b"\r\n-" * 1_000_000,
    "no boundary": b"x" * 5_000_000,
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_forms_that_are_bombs_are_refused(served: Gateway, bomb: str) -> None:
    headers = {"content-type": "multipart/form-data; boundary=b"}
    response = await served.http.post("/v1/audio/voices", content=BOMBS[bomb], headers=headers)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["message"]
    assert len(response.content) < 2_000
    assert (await served.http.get("/healthz")).status_code == 200


async def test_a_half_closed_connection_gets_no_work_done(served: Gateway, running: Stack) -> None:
    host, _, port = served.address.partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(head(1_000) + b"{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await served.http.get("/healthz")).status_code == 200
    assert running.scripts["frontend"][0].calls == []


@pytest.mark.start(settings={"reader_seconds": 0.5})
async def test_a_caller_that_stops_reading_is_disconnected(
    served: Gateway, running: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    long = " ".join(["everlasting"] * 200)
    host, _, port = served.address.partition(":")
    content = json.dumps(body(input=long, response_format="wav")).encode()
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        await asyncio.to_thread(caller.connect, (host, int(port)))
        caller.sendall(head(len(content)) + content)
        while "the caller has read nothing for 0.5 s" not in caplog.text:
            await asyncio.sleep(0.05)
        await all_idle(running)
        caller.settimeout(10)
        received = 0
        while piece := await asyncio.to_thread(caller.recv, 1 << 20):
            received += len(piece)
    assert received < 200 * 55 * 960 * 2, "everything was sent"


@pytest.mark.parametrize("path", ["/v1", "/page/../app.py", "/v1/audio", "/v1/audio/speech/", "/../etc/passwd"])
async def test_other_paths_have_an_error_object(served: Gateway, path: str) -> None:
    response = await served.http.get(path)
    assert response.status_code in (404, 405, 307)
    if response.status_code != 307:
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


async def test_other_methods_are_refused(served: Gateway) -> None:
    response = await served.http.delete(PATH)
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
