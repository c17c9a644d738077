"""The orchestrator dies in the middle of an answer and another takes its place: what a caller hears
is what it would have heard undisturbed, in every form.
"""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect

from tests.gateway.conversing import send, spoken
from tests.gateway.test_openai_speech import PATH, body
from tests.gateway.test_websocket import END, SETUP, answers, text
from tests.pipeline.calling import TEXT, all_idle, hang_after_some, hook
from tests.stacks.gateway_server import Gateway, gateway
from tests.stacks.relay import Relay
from tests.stacks.scripted_stages import Stack, expected_audio, stack

FORMS = ("pcm", "wav", "mp3", "opus", "aac", "flac", "sse", "sse mp3", "websocket", "websocket json")


@contextlib.asynccontextmanager
async def losing() -> AsyncIterator[tuple[Gateway, Relay, Stack, Stack]]:
    """A gateway whose orchestrator stops after some audio, and another one that would go on."""
    async with stack() as first, stack() as second:
        relay = Relay(first.orchestrator.port)
        async with relay, gateway(f"127.0.0.1:{relay.port}") as served:
            hook(first, "token2wav", hang_after_some)
            yield served, relay, first, second


async def lose(relay: Relay, second: Stack) -> None:
    """As soon as some audio has been sent."""
    relay.target = second.orchestrator.port
    relay.cut()


async def stuck(running: Stack) -> None:
    """Return when the stage has stopped behind some audio, and that has been passed on."""
    while not running.scripts["token2wav"][0].active:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)


async def heard(served: Gateway, form: str) -> bytes:
    """All that a caller receives of the audio, as bytes of its format."""
    kind, _, variant = form.partition(" ")
    if kind == "websocket":
        async with connect(f"ws://{served.address}/v1/audio/stream") as ws:
            await send(ws, {**SETUP, "audio": variant or "binary"}, text(TEXT), END)
            messages, audio = await answers(ws)
            assert messages[-1]["type"] == "summary"
            return audio
    fields: dict[str, Any] = {"response_format": (variant or "pcm") if kind == "sse" else kind}
    if kind == "sse":
        fields["stream_format"] = "sse"
    response = await served.http.post(PATH, json=body(**fields))
    assert response.status_code == 200, response.text
    if kind != "sse":
        return response.content
    events = [block.removeprefix("data: ") for block in response.text.split("\n\n")][:-1]
    assert events.pop() == "[DONE]"
    *deltas, done = map(json.loads, events)
    assert done["type"] == "speech.audio.done"
    return b"".join(base64.b64decode(delta["audio"]) for delta in deltas)


@pytest.mark.parametrize("form", FORMS)
async def test_nothing_of_it_is_heard(form: str) -> None:
    async with losing() as (served, relay, first, second):
        speaking = asyncio.create_task(heard(served, form))
        await stuck(first)
        assert not speaking.done()
        await lose(relay, second)
        disturbed = await speaking
        assert second.scripts["token2wav"][0].decode_setups, "the other orchestrator was not asked"
        undisturbed = await heard(served, form)
        await all_idle(first)
        await all_idle(second)
    assert _without_serial(disturbed, form) == _without_serial(undisturbed, form)
    if form in ("pcm", "sse", "websocket", "websocket json"):
        assert spoken(disturbed) == expected_audio(TEXT)
    if form == "wav":
        assert spoken(disturbed[44:]) == expected_audio(TEXT)


def _without_serial(audio: bytes, form: str) -> bytes:
    """The pages of an Ogg stream bear a random serial number and a checksum over it."""
    if form != "opus":
        return audio
    pages = np.frombuffer(audio, np.uint8).copy()
    at = audio.find(b"OggS")
    while at >= 0:
        pages[at + 14 : at + 18] = pages[at + 22 : at + 26] = 0
        at = audio.find(b"OggS", at + 4)
    return pages.tobytes()
