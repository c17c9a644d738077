"""WS /v1/audio/stream: text in as it is written, audio and facts out, utterance after utterance."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from tests.gateway.conversing import send, spoken, until_closed
from tests.pipeline.calling import TEXT, abort_once, all_idle, busy, hang, hang_after_some, hold_back, hook
from tests.stacks.gateway_server import Gateway
from tests.stacks.scripted_stages import Stack, expected_audio


@pytest.fixture
async def ws(served: Gateway) -> AsyncIterator[ClientConnection]:
    async with connect(f"ws://{served.address}/v1/audio/stream") as ws:
        yield ws


async def answers(ws: ClientConnection) -> tuple[list[dict[str, Any]], bytes]:
    """Messages and audio up to the summary or error."""
    messages: list[dict[str, Any]] = []
    audio = b""
    while not messages or messages[-1]["type"] not in ("summary", "error"):
        received = await ws.recv()
        if isinstance(received, bytes):
            audio += received
            continue
        message = json.loads(received)
        if message["type"] == "audio":
            audio += base64.b64decode(message["audio"])
        else:
            messages.append(message)
    return messages, audio


SETUP = {"type": "setup", "seed": 7, "onset": "natural"}
END = {"type": "end"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


@pytest.mark.parametrize("form", ["binary", "json"])
@pytest.mark.parametrize("cut", [1, 5, 1_000])
async def test_text_in_pieces_is_the_speech_of_the_whole(
    ws: ClientConnection, served: Gateway, form: str, cut: int
) -> None:
    pieces = [TEXT[at : at + cut] for at in range(0, len(TEXT), cut)]
    await send(ws, {**SETUP, "audio": form}, *map(text, pieces), END)
    messages, audio = await answers(ws)
    http = await served.http.post(
        "/v1/audio/speech", json={"input": TEXT, "seed": 7, "onset": "natural", "response_format": "pcm"}
    )
    assert spoken(audio) == expected_audio(TEXT) == spoken(http.content)
    assert [message["type"] for message in messages] == ["header", "summary"]
    assert messages[0] | {"seed": 7, "voice": "anna", "synthetic_audio": True} == messages[0]
    assert messages[1]["audio_seconds"] == len(audio) / 48_000


async def test_each_utterance_may_continue_another_trace(ws: ClientConnection) -> None:
    found = []
    for trace in ("ab" * 16, "cd" * 16, ""):
        parent = f"00-{trace}-{'12' * 8}-01" if trace else ""
        await send(ws, {**SETUP, "traceparent": parent}, text("one"), END)
        found.append((await answers(ws))[0][0]["trace_id"])
    assert found == ["ab" * 16, "cd" * 16, None]


async def test_a_limit_of_sentence_length_reaches_the_frontend(ws: ClientConnection, running: Stack) -> None:
    await send(ws, {**SETUP, "max_sentence_characters": 40}, text(TEXT), END)
    await answers(ws)
    assert running.scripts["frontend"][0].text_setups[0].max_sentence_characters == 40


@pytest.mark.start(brownout_share=1.0)
async def test_fewer_euler_steps_are_allowed_and_the_summary_says_how_many_were_taken(
    ws: ClientConnection, running: Stack
) -> None:
    await send(ws, {**SETUP, "least_euler_steps": 6}, text(TEXT), END)
    messages, _ = await answers(ws)
    assert running.scripts["token2wav"][0].decode_setups[0].preferred_euler_steps == 6
    assert messages[-1]["euler_steps"] == 10, "the decoder of this stack takes ten"
    await send(ws, {**SETUP, "least_euler_steps": 4}, text(TEXT), END)
    refused, _ = await answers(ws)
    assert "least_euler_steps is 4, allowed are 5 to 10" in refused[-1]["error"]["message"]


async def test_utterances_follow_one_another(ws: ClientConnection) -> None:
    for _ in range(3):
        await send(ws, SETUP, text(TEXT), END)
        assert spoken((await answers(ws))[1]) == expected_audio(TEXT)


async def test_a_setup_sent_early_waits_for_its_turn(ws: ClientConnection) -> None:
    """Behind `end` nothing belongs to the utterance that is still spoken."""
    await send(ws, SETUP, text("one"), END, SETUP, text("another"), END)
    assert spoken((await answers(ws))[1]) == expected_audio("one")
    assert spoken((await answers(ws))[1]) == expected_audio("another")


async def test_flush_speaks_what_is_there(ws: ClientConnection) -> None:
    await send(ws, SETUP, text("one"), {"type": "flush"})
    audio = b""
    while len(spoken(audio)) < len(expected_audio("one")):
        received = await ws.recv()
        audio += received if isinstance(received, bytes) else b""
    await send(ws, END)
    assert spoken(audio + (await answers(ws))[1]) == expected_audio("one")


async def test_cancel_ends_the_utterance_and_the_next_one_begins(ws: ClientConnection, running: Stack) -> None:
    hook(running, "token2wav", hang)
    await send(ws, SETUP, text(TEXT))
    await busy(running, "token2wav")
    await send(ws, {"type": "cancel"})
    messages, _ = await answers(ws)
    assert messages[-1]["cancelled"]
    await all_idle(running)
    hook(running, "token2wav", None)
    await send(ws, SETUP, text("one"), END)
    assert spoken((await answers(ws))[1]) == expected_audio("one")


async def test_what_crosses_the_summary_does_no_harm(ws: ClientConnection) -> None:
    await send(ws, SETUP, text("one"), END)
    await answers(ws)
    await send(ws, {"type": "cancel"}, END, text("late"), SETUP, text("another"), END)
    assert spoken((await answers(ws))[1]) == expected_audio("another")


async def test_text_behind_a_cancel_is_ignored(ws: ClientConnection, running: Stack) -> None:
    hook(running, "token2wav", hang)
    await send(ws, SETUP, text(TEXT))
    await busy(running, "token2wav")
    await send(ws, {"type": "cancel"}, text("more"), END)
    assert (await answers(ws))[0][-1]["cancelled"]
    hook(running, "token2wav", None)
    await send(ws, SETUP, text("one"), END)
    assert spoken((await answers(ws))[1]) == expected_audio("one")


async def test_hanging_up_with_a_setup_sent_ahead_leaves_every_stage_idle(ws: ClientConnection, running: Stack) -> None:
    hold_back(running)
    await send(ws, SETUP, text(TEXT), END, SETUP, text("another"))
    await busy(running, "token2wav")
    await ws.close()
    await all_idle(running)


@pytest.mark.start(settings={"allowed_origins": ("https://app.example",)})
async def test_pages_of_other_origins_are_refused(served: Gateway) -> None:
    address = f"ws://{served.address}/v1/audio/stream"
    with pytest.raises(InvalidStatus):
        await connect(address, origin="https://evil.example")  # type: ignore[arg-type]
    for origin in ("https://app.example", f"http://{served.address}"):
        async with connect(address, origin=origin):  # type: ignore[arg-type]
            pass
    refused = await served.http.post(
        "/v1/audio/speech", json={"input": TEXT}, headers={"origin": "https://evil.example"}
    )
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "origin_not_allowed")


async def test_cancel_behind_the_end_stops_as_well(ws: ClientConnection, running: Stack) -> None:
    hook(running, "token2wav", hang_after_some)
    await send(ws, SETUP, text(TEXT), END)
    audio = b""
    while not audio:
        received = await ws.recv()
        audio += received if isinstance(received, bytes) else b""
    await send(ws, {"type": "cancel"})
    messages, more = await answers(ws)
    assert messages[-1]["cancelled"]
    assert messages[-1]["audio_seconds"] == len(audio + more) / 48_000
    await all_idle(running)


async def test_hanging_up_leaves_every_stage_idle(ws: ClientConnection, running: Stack) -> None:
    hold_back(running)
    await send(ws, SETUP, text(TEXT), END)
    await busy(running, "token2wav")
    await ws.close()
    await all_idle(running)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (["{"], "JSON"),
        (["[" * 90_000], "nests"),
        (["[]"], "object"),
        (['{"type": "setup", "voice": "\\ud800"}'], "surrogate"),
        ([b"\0"], "binary"),
        ([json.dumps(text("before the setup"))], "type"),
        ([json.dumps({**SETUP, "voic": "anna"})], "voic"),
        ([json.dumps({**SETUP, "sample_rate": "high"})], "sample_rate"),
        ([json.dumps({**SETUP, "sample_rate": 1})], "8000"),
        ([json.dumps({**SETUP, "traceparent": "00-12-34-01"})], "traceparent"),
        ([json.dumps(SETUP), json.dumps({"type": "txt"})], "type"),
        ([json.dumps(SETUP), json.dumps({"type": "text"})], "text"),
        ([json.dumps(SETUP), json.dumps(text("x" * 100_000))], "100000"),
        ([json.dumps({**SETUP, "voice": "nobody"}), json.dumps(text("one")), json.dumps(END)], "nobody"),
    ],
)
async def test_what_cannot_be_understood_is_refused_and_ends_the_connection(
    ws: ClientConnection, running: Stack, messages: list[str | bytes], words: str
) -> None:
    await send(ws, *messages)
    error = (await answers(ws))[0][-1]
    assert error["type"] == "error"
    assert words in error["error"]["message"]
    assert await until_closed(ws) == (1008, [])
    await all_idle(running)


@pytest.mark.start(max_streams=1)
async def test_one_too_many_may_come_back(ws: ClientConnection, served: Gateway, running: Stack) -> None:
    gate = hold_back(running)
    await send(ws, SETUP, text("one "))
    await busy(running, "token2wav")
    async with connect(f"ws://{served.address}/v1/audio/stream") as other:
        await send(other, SETUP, text("one"), END)
        error = (await answers(other))[0][-1]
        assert await until_closed(other) == (1013, [])
    gate.set()
    await send(ws, END)
    assert spoken((await answers(ws))[1]) == expected_audio("one")
    assert error["error"]["type"] == "rate_limit_error"
    assert error["retry_after_milliseconds"] >= 200


async def test_a_failure_in_the_middle_is_an_error_and_no_summary(ws: ClientConnection, running: Stack) -> None:
    hook(running, "token2wav", abort_once(grpc.StatusCode.INTERNAL, "broken", 20 * 960))
    await send(ws, SETUP, text(TEXT), END)
    messages, audio = await answers(ws)
    assert messages[-1]["error"]["type"] == "server_error"
    assert audio
    assert await until_closed(ws) == (1011, [])
