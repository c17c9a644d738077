"""The end of the gateway: what is under way ends in its own time, what is new is refused with an
answer, and what does not end in time is cut with one.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.gateway.apis.test_vllm_omni import CONFIG, DONE
from tests.gateway.conversing import send, spoken
from tests.gateway.test_openai_speech import PATH, body
from tests.gateway.test_websocket import END, SETUP, answers, text
from tests.pipeline.calling import TEXT, all_idle, busy, hang, hold_back, hook
from tests.stacks.gateway_server import Gateway, scripted_gateway
from tests.stacks.scripted_stages import Stack, expected_audio


@asynccontextmanager
async def serving(drain_seconds: float = 20.0) -> AsyncIterator[tuple[Gateway, Stack]]:
    async with scripted_gateway({"drain_seconds": drain_seconds}) as (served, running):
        yield served, running


async def drain(served: Gateway) -> None:
    """Return when it has begun."""
    served.server.should_exit = True
    while (await served.http.get("/readyz")).json()["orchestrator"] != "DRAINING":
        await asyncio.sleep(0.02)


def connected(served: Gateway) -> connect:
    return connect(f"ws://{served.address}/v1/audio/stream")


async def close_code(ws: ClientConnection) -> int | None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            await ws.recv()
    return ws.close_code


async def test_what_is_under_way_ends_and_what_is_new_is_refused() -> None:
    async with serving() as (served, running), connected(served) as ws, connected(served) as idle:
        gate = hold_back(running)
        await send(ws, SETUP, text(TEXT[:10]))
        speaking = asyncio.create_task(served.http.post(PATH, json=body(response_format="pcm")))
        await busy(running, "token2wav")
        while served.server._drain.working < 3:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        await drain(served)
        assert await close_code(idle) == 1012
        refused = await served.http.get("/v1/models")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert (refused.headers["x-should-retry"], refused.headers["connection"]) == ("true", "close")
        assert (await served.http.get("/healthz")).status_code == 200
        assert not speaking.done()
        await send(ws, text(TEXT[10:]), END)
        gate.set()
        response = await speaking
        assert spoken(response.content) == expected_audio(TEXT)
        messages, audio = await answers(ws)
        assert spoken(audio) == expected_audio(TEXT)
        assert messages[-1]["type"] == "summary"
        assert await close_code(ws) == 1012


async def test_a_drained_gateway_ends_at_once() -> None:
    async with serving(drain_seconds=3600) as (served, _):
        await served.http.get("/v1/models")
    # The end of the block waits for the server.


async def test_a_setup_that_waits_is_not_begun() -> None:
    async with serving() as (served, running), connected(served) as ws:
        gate = hold_back(running)
        await send(ws, SETUP, text(TEXT), END, SETUP, text("another"), END)
        await busy(running, "token2wav")
        await drain(served)
        gate.set()
        assert spoken((await answers(ws))[1]) == expected_audio(TEXT)
        assert await close_code(ws) == 1012


async def test_what_does_not_end_in_time_is_cut_with_an_answer() -> None:
    async with serving(drain_seconds=0.5) as (served, running), connected(served) as ws:
        hook(running, "token2wav", hang)
        await send(ws, SETUP, text(TEXT), END)
        waiting = asyncio.create_task(served.http.post(PATH, json=body(response_format="pcm")))
        while sum(script.active for script in running.scripts["token2wav"]) < 2:
            await asyncio.sleep(0.01)
        served.server.should_exit = True
        assert await close_code(ws) == 1012
        refused = await waiting
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        await all_idle(running)


async def test_audio_that_does_not_end_in_time_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    async def hang_after_some(context: Any, sent: int) -> None:
        if sent >= 10 * 960:
            await asyncio.Event().wait()

    async with serving(drain_seconds=0.5) as (served, running):
        hook(running, "token2wav", hang_after_some)
        async with served.http.stream("POST", PATH, json=body(response_format="pcm")) as response:
            assert response.status_code == 200
            served.server.should_exit = True
            with pytest.raises(httpx2.RemoteProtocolError):
                await response.aread()
        await all_idle(running)
    assert "an answer was cut: the gateway is being stopped" in caplog.text
    assert "Exception in ASGI application" not in caplog.text


async def test_a_second_interrupt_ends_the_drain() -> None:
    async with serving(drain_seconds=3600) as (served, running), connected(served) as ws:
        hook(running, "token2wav", hang)
        await send(ws, SETUP, text(TEXT), END)
        await busy(running, "token2wav")
        served.server.handle_exit(2, None)
        await asyncio.sleep(0.3)
        served.server.handle_exit(2, None)
        assert await close_code(ws) == 1012
        served.server._captured_signals.clear()
        await all_idle(running)


async def test_messages_tell_json() -> None:
    """A client that reads only JSON understands each of the refusals."""
    async with serving() as (served, running):
        hold_back(running)
        held = asyncio.create_task(served.http.post(PATH, json=body(response_format="pcm")))
        await busy(running, "token2wav")
        await drain(served)
        refused = await served.http.post(PATH, json=body())
        assert json.loads(refused.content)["error"]["type"] == "server_error"
        held.cancel()
        await asyncio.wait((held,))
        await all_idle(running)


SOCKETS: dict[str, tuple[str, tuple[dict[str, Any], ...]]] = {
    "ours": ("/v1/audio/stream", (SETUP, text(TEXT), END)),
    "stream-input": ("/v1/text-to-speech/anna/stream-input", ({"text": TEXT}, {"text": ""})),
    "multi-stream-input": ("/v1/text-to-speech/anna/multi-stream-input", ({"text": TEXT, "flush": True},)),
    "vllm-omni": ("/v1/audio/speech/stream", (CONFIG, {"type": "input.text", "text": TEXT}, DONE)),
    "jambonz": ("/jambonz/stream", ({"type": "stream", "text": TEXT}, {"type": "flush"})),
}


@pytest.mark.parametrize("speaking", [True, False])
@pytest.mark.parametrize("api", SOCKETS)
async def test_a_websocket_whose_task_is_cancelled_is_closed(
    api: str, speaking: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path, messages = SOCKETS[api]
    async with serving() as (served, running), connect(f"ws://{served.address}{path}") as ws:
        hook(running, "token2wav", hang)
        await send(ws, *messages[: None if speaking else 1])
        if speaking:
            await busy(running, "token2wav")
        tasks = list(served.server.server_state.tasks)
        for task in tasks:
            task.cancel()
        assert await close_code(ws) == 1012
        await asyncio.wait(tasks)
        await all_idle(running)
        assert "Exception in ASGI application" not in caplog.text
        assert not [task for task in asyncio.all_tasks() if "Conversation." in repr(task)]
