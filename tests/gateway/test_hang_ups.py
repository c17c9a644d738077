"""Callers that hang up, in every form and at every moment: each stage's call is cancelled."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.gateway.conversing import send
from tests.gateway.test_openai_speech import PATH, body
from tests.gateway.test_websocket import END, SETUP, text
from tests.pipeline.calling import TEXT, all_idle, busy, hang, hang_after_some, hook
from tests.stacks.gateway_server import Gateway
from tests.stacks.scripted_stages import Stack

HTTP: dict[str, dict[str, Any]] = {
    "pcm": {"response_format": "pcm"},
    "wav": {"response_format": "wav"},
    "mp3": {"response_format": "mp3"},
    "sse": {"response_format": "pcm", "stream_format": "sse"},
}


async def keep_on(context: Any, sent: int) -> None:
    """As fast as a voice speaks."""
    await asyncio.sleep(0.02)


MOMENTS: dict[str, tuple[Callable[..., Any], bool]] = {
    "before audio": (hang, False),
    "while audio flows": (keep_on, True),
    "while it stands still": (hang_after_some, True),
}
"""What token2wav does, and whether audio is heard before the caller hangs up."""


@contextlib.asynccontextmanager
async def caller(served: Gateway, form: str, hears: bool) -> AsyncIterator[asyncio.Transport]:
    """One that has asked to speak, and has heard some audio if there is any."""
    if form == "websocket":
        async with connect(f"ws://{served.address}/v1/audio/stream") as ws:
            await send(ws, SETUP, text(TEXT), END)
            while hears and not isinstance(await ws.recv(), bytes):
                pass
            yield ws.transport
        return
    host, _, port = served.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    content = json.dumps(body(**HTTP[form])).encode()
    writer.write(
        f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n".encode()
        + content
    )
    if hears:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(10)
    try:
        yield writer.transport
    finally:
        writer.close()


def end(transport: asyncio.Transport, how: str) -> None:
    if how == "half-closed":
        transport.write_eof()
    elif how == "reset":
        transport.abort()
    else:
        transport.close()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("form", [*HTTP, "websocket"])
async def test_every_stage_is_cancelled(served: Gateway, running: Stack, form: str, moment: str) -> None:
    behaviour, hears = MOMENTS[moment]
    hook(running, "token2wav", behaviour)
    async with caller(served, form, hears) as transport:
        await busy(running, "token2wav")
        end(transport, "closed")
        await cancelled(running)


@pytest.mark.parametrize("how", ["half-closed", "reset"])
@pytest.mark.parametrize("form", ["pcm", "websocket"])
async def test_however_the_connection_ends(served: Gateway, running: Stack, form: str, how: str) -> None:
    hook(running, "token2wav", hang)
    async with caller(served, form, hears=False) as transport:
        await busy(running, "token2wav")
        end(transport, how)
        await cancelled(running)


async def cancelled(running: Stack) -> None:
    """All calls of the stages have ended, and not because they were complete."""
    await all_idle(running)
    assert sum(script.cancelled for scripts in running.scripts.values() for script in scripts)


async def test_a_voice_that_is_being_made_is_not(served: Gateway, running: Stack) -> None:
    script = running.scripts["frontend"][0]
    script.read = hang
    form = {"files": {"audio_sample": b"sound"}, "data": {"voice_id": "new"}}
    making = asyncio.create_task(served.http.post("/v1/audio/voices", **form))
    await busy(running, "frontend")
    making.cancel()
    await asyncio.wait((making,))
    await cancelled(running)
    script.read = None
    made = await served.http.post("/v1/audio/voices", **form)
    assert (made.status_code, made.json()["id"]) == (201, "new")
