"""Health over HTTP: what a service publishes, for callers that have neither certificate nor key."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from cosyserve.errors import SettingsError
from cosyserve.rpc import health_port
from cosyserve.rpc.health_port import HealthPort
from cosyserve.rpc.server import running
from tests.unit.cosyserve.rpc.small_service import NAME, SETTINGS, loader, one_chunk


async def asked(port: int | None, request: bytes = b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_a_service_is_ready_when_it_has_loaded() -> None:
    gate = asyncio.Event()
    settings = replace(SETTINGS, health_listen="127.0.0.1:0", drain_seconds=0.0)
    ports = list[int | None]()
    load = loader(one_chunk, gate)

    async def noting(service: object) -> object:
        ports.append(service.health_port)  # type: ignore[attr-defined]
        return await load(service)  # type: ignore[arg-type]

    starting = running(NAME, settings, noting)  # type: ignore[arg-type]
    entering = asyncio.ensure_future(starting.__aenter__())
    async with asyncio.timeout(20):
        while not ports:
            await asyncio.sleep(0.01)
    assert (await asked(ports[0])).endswith(b"NOT_SERVING\n")
    assert (await asked(ports[0])).startswith(b"HTTP/1.1 503 ")
    assert (await asked(ports[0], b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
    gate.set()
    await entering
    assert (await asked(ports[0])).endswith(b"\r\n\r\nSERVING\n")
    await starting.__aexit__(None, None, None)
    with pytest.raises(OSError):  # noqa: PT011 - refused, or reset
        await asyncio.open_connection("127.0.0.1", ports[0])


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET /healthz?x=1 HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 "),
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 "),
        (b"POST /readyz HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 "),
        (b"GET /readyz HTTP/1.1\r\nx: " + b"y" * 10_000, b""),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"HTTP/1.1 404 "),
    ],
)
async def test_other_requests(request_: bytes, answer: bytes) -> None:
    async def state() -> str:
        return "SERVING"

    served = HealthPort(state)
    await served.start("127.0.0.1:0")
    try:
        assert (await asked(served.port, request_))[: len(answer) or 1] == answer
    finally:
        await served.close()


async def test_silent_connections_do_not_add_up() -> None:
    async def state() -> str:
        return "SERVING"

    served = HealthPort(state)
    await served.start("127.0.0.1:0")
    silent = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(40)]
    try:
        async with asyncio.timeout(30):
            # Those above the limit at once, the others after their time.
            assert [await reader.read() for reader, _ in silent[32:]] == [b""] * 8
            assert [await reader.read() for reader, _ in silent[:32]] == [b""] * 32
        assert (await asked(served.port)).startswith(b"HTTP/1.1 200 ")
    finally:
        for _, writer in silent:
            writer.close()
        await served.close()


async def test_a_port_in_use_is_named() -> None:
    async def state() -> str:
        return "SERVING"

    first = HealthPort(state)
    await first.start("127.0.0.1:0")
    try:
        with pytest.raises(SettingsError, match=f"health_listen is '127.0.0.1:{first.port}', which cannot be"):
            await HealthPort(state).start(f"127.0.0.1:{first.port}")
    finally:
        await first.close()


async def test_a_scraper_gets_the_page_in_the_format_it_asks_for() -> None:
    async def state() -> str:
        return "SERVING"

    asked_for = list[str]()

    def page(accept: str) -> tuple[str, bytes]:
        asked_for.append(accept)
        return "text/of-its-own; version=1", b"one 1\n" * 50_000

    served = HealthPort(state, page)
    await served.start("127.0.0.1:0")
    request = b"GET /metrics HTTP/1.1\r\nhost: x\r\nACCEPT: text/plain;q=0.5\r\naccept: a/b\r\n\r\n"
    try:
        answers = await asyncio.gather(*(asked(served.port, request) for _ in range(3)))
    finally:
        await served.close()
    for answer in answers:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/of-its-own; version=1\r\n")
        assert f"content-length: {len(body)}".encode() in head
        assert body == b"one 1\n" * 50_000
    assert asked_for == ["text/plain;q=0.5,a/b"] * 3


async def test_an_answer_that_nobody_takes_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def state() -> str:
        return "SERVING"

    monkeypatch.setattr(health_port, "_SECONDS", 2.0)
    much = b"x" * (32 << 20)
    served = HealthPort(state, lambda _: ("text/plain", much))
    await served.start("127.0.0.1:0")
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    try:
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(30):
            assert await reader.readexactly(12) == b"HTTP/1.1 200"
            await asyncio.wait(list(served._answering))
            with contextlib.suppress(ConnectionError):
                assert len(await reader.read()) < len(much)
    finally:
        writer.close()
        await served.close()
