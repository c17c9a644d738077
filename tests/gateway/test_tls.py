"""The gateway over TLS: HTTP, WebSockets and Wyoming; whose certificate is let in, and exchanges of
certificates while requests run.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from wyoming.event import Event, async_read_event, async_write_event

from cosyserve.client import AsyncClient
from cosyserve.tls.certificate_files import CurrentCertificates
from services.gateway.speech.speaking import Speaker
from services.gateway.speech.voice_names import VoiceNames
from services.gateway.wyoming.connection import Patience
from services.gateway.wyoming.server import WyomingServer
from tests.gateway.conversing import send, spoken
from tests.gateway.test_websocket import END, SETUP, answers, text
from tests.stacks.certificates import HERE, Authority, Folder
from tests.stacks.gateway_server import Gateway, gateway
from tests.stacks.scripted_stages import expected_audio
from tests.stacks.secured import CALLER, ORCHESTRATOR, Secured, secured, served

PATH = "/v1/audio/speech"
BODY = {"model": "x", "input": "one three", "voice": "anna", "response_format": "pcm"}


def context_of(folder: Folder | None, authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem.decode())
    if folder is not None:
        context.load_cert_chain(folder.certificate, folder.key)
    return context


def gateway_settings(stack: Secured, **settings: Any) -> dict[str, Any]:
    """The gateway calls as a welcome caller, and has the certificate of the orchestrator."""
    caller = stack.folders["caller"]
    calls = {"calls_ca": caller.ca, "calls_certificate": caller.certificate, "calls_key": caller.key}
    return {**served(stack.folders["orchestrator"], CALLER), **calls, **settings}


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Secured]:
    async with secured(tmp_path) as running:
        yield running


@pytest.fixture
async def behind(stack: Secured) -> AsyncIterator[Gateway]:
    verify = context_of(stack.folders["caller"], stack.authority)
    async with gateway(stack.address, verify=verify, **gateway_settings(stack)) as served_gateway:
        yield served_gateway


async def test_speech_over_http_and_websockets(stack: Secured, behind: Gateway) -> None:
    response = await behind.http.post(PATH, json=BODY)
    assert response.status_code == 200
    assert len(response.content) >= len(expected_audio(BODY["input"]))
    assert (await behind.http.get("/readyz")).json() == {"status": "ok", "orchestrator": "SERVING"}
    context = context_of(stack.folders["caller"], stack.authority)
    async with connect(f"wss://{behind.address}/v1/audio/stream", ssl=context) as ws:
        await send(ws, {**SETUP, "audio": "binary"}, text("one three"), END)
        assert spoken((await answers(ws))[1]) == expected_audio("one three")


async def test_who_gets_through(stack: Secured, behind: Gateway, tmp_path: Path) -> None:
    """A status, or the end of the connection."""

    async def outcome(verify: ssl.SSLContext, scheme: str = "https") -> int | str:
        async with httpx2.AsyncClient(base_url=f"{scheme}://{behind.address}", verify=verify, timeout=10) as http:
            try:
                return (await http.post(PATH, json=BODY)).status_code
            except httpx2.TransportError as error:
                return "closed" if not isinstance(error, httpx2.TimeoutException) else "timeout"

    def with_pair(*names: str, authority: Authority | None = None, **days: float) -> ssl.SSLContext:
        pair = (authority or stack.authority).issue((*HERE, *names), **days)
        return context_of(Folder(tmp_path / "other").put(pair, stack.authority.pem), stack.authority)

    right = context_of(stack.folders["caller"], stack.authority)
    found = {
        "right": await outcome(right),
        "plaintext": await outcome(right, "http"),
        "no certificate": await outcome(context_of(None, stack.authority)),
        "another CA": await outcome(with_pair(CALLER, authority=Authority("another"))),
        "expired": await outcome(with_pair(CALLER, since_days=-3, until_days=-1)),
        "another name": await outcome(with_pair(ORCHESTRATOR)),
        "no name": await outcome(with_pair()),
        "unknown server": await outcome(context_of(stack.folders["caller"], Authority())),
    }
    assert found == {
        "right": 200,
        "plaintext": "closed",
        "no certificate": "closed",
        "another CA": "closed",
        "expired": "closed",
        "another name": 403,
        "no name": 403,
        "unknown server": "closed",
    }
    async with httpx2.AsyncClient(base_url=f"https://{behind.address}", verify=with_pair(ORCHESTRATOR)) as http:
        answer = await http.get("/v1/models")
        assert answer.json()["error"]["code"] == "permission_denied"
        assert "which may not call this service" in answer.json()["error"]["message"]


async def test_no_request_fails_while_certificates_are_exchanged(stack: Secured, behind: Gateway) -> None:
    """Over connections that are kept, and over new ones."""
    context = context_of(stack.folders["caller"], stack.authority)
    statuses, over = list[int](), asyncio.Event()

    async def speak(kept: bool) -> None:
        while not over.is_set():
            if kept:
                statuses.append((await behind.http.post(PATH, json=BODY)).status_code)
                continue
            async with httpx2.AsyncClient(base_url=f"https://{behind.address}", verify=context, timeout=30) as http:
                statuses.append((await http.post(PATH, json=BODY)).status_code)

    tasks = [asyncio.create_task(speak(kept)) for kept in (True, True, False, False)]
    serials = set()
    for _ in range(4):
        wanted = len(statuses) + 8
        while len(statuses) < wanted:
            await asyncio.sleep(0.01)
        stack.folders["orchestrator"].put(stack.authority.issue((*HERE, ORCHESTRATOR)), stack.authority.pem)
        stack.folders["caller"].put(stack.authority.issue((*HERE, CALLER)), stack.authority.pem)
        _, writer = await asyncio.open_connection(*behind.address.split(":"), ssl=context, server_hostname="localhost")
        serials.add(writer.get_extra_info("peercert")["serialNumber"])
        writer.close()
    over.set()
    await asyncio.gather(*tasks)
    assert set(statuses) == {200}
    assert len(serials) == 4


async def test_handshakes_count_as_connections(stack: Secured) -> None:
    """A peer that never begins its handshake is cut when others need the room, or after the time
    for a head.
    """
    verify = context_of(stack.folders["caller"], stack.authority)
    settings = gateway_settings(stack, max_connections=4, head_seconds=2.0)
    async with gateway(stack.address, verify=verify, **settings) as small:
        silent = [await asyncio.open_connection(*small.address.split(":")) for _ in range(8)]
        assert (await small.http.post(PATH, json=BODY)).status_code == 200
        assert [await reader.read() for reader, _ in silent] == [b""] * 8
        for _, writer in silent:
            writer.close()
        # The files of those connections are used again by others.
        for _ in range(12):
            async with httpx2.AsyncClient(base_url=f"https://{small.address}", verify=verify) as http:
                assert (await http.post(PATH, json=BODY)).status_code == 200


async def test_wyoming(stack: Secured, tmp_path: Path) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    certificates = CurrentCertificates(stack.folders["orchestrator"].files, "served")
    async with AsyncClient(stack.address, tls=stack.caller) as client:
        speaker = Speaker(client, VoiceNames(client.voices), 20.0)
        server = WyomingServer(speaker, Patience(20.0, 5.0, 20.0), 4, certificates, (CALLER,))
        await server.start(listening)
        try:
            other = Folder(tmp_path / "other").put(stack.authority.issue((*HERE, ORCHESTRATOR)), stack.authority.pem)
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
            kinds = []
            for folder in (stack.folders["caller"], other):
                context = context_of(folder, stack.authority)
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=context, server_hostname="localhost"
                )
                await async_write_event(Event("describe"), writer)
                answer = await asyncio.wait_for(async_read_event(reader), 20)
                kinds.append((answer.type, answer.data.get("code")) if answer else None)
                writer.close()
            assert kinds == [("info", None), ("error", "permission_denied")]
            for reader, writer in silent:
                assert await asyncio.wait_for(reader.read(), 20) == b""
                writer.close()
        finally:
            await server.close(0.0)
