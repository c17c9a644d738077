"""jambonz's API of tokens by WebSocket, with a caller that does what jambonz does."""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import grpc
import pytest
from websockets.asyncio.client import ClientConnection, connect

from cosyserve.audio.encoding import Encoding
from cosyserve.client import AsyncClient
from services.gateway.jambonz import stream as served_stream
from services.gateway.speech.arriving_text import MOST_CHARACTERS
from tests.gateway import conversing
from tests.gateway.conversing import send
from tests.pipeline.calling import TEXT, abort_once, all_idle, busy, hang, hold_back, hook
from tests.stacks.gateway_server import Gateway
from tests.stacks.scripted_stages import Stack

FLUSH, CLEAR, STOP = {"type": "flush"}, {"type": "clear"}, {"type": "stop"}


@pytest.fixture
async def ws(served: Gateway, query: dict[str, Any]) -> AsyncIterator[ClientConnection]:
    url = f"ws://{served.address}/jambonz/stream?{urlencode({'seed': 7} | query)}"
    async with connect(url, additional_headers={"authorization": "Bearer of-jambonz"}) as ws:
        yield ws


def text(words: str) -> dict[str, Any]:
    return {"type": "stream", "text": words}


async def greeting(ws: ClientConnection) -> dict[str, Any]:
    return json.loads(await ws.recv())


async def until_closed(ws: ClientConnection) -> tuple[bytes, list[dict[str, Any]], int | None]:
    """Audio, messages and the code with which the server closes."""
    code, received = await conversing.until_closed(ws)
    audio = b"".join(one for one in received if isinstance(one, bytes))
    return audio, [json.loads(one) for one in received if isinstance(one, str)], code


async def speech_of(running: Stack, words: str, rate: int, encoding: Encoding = Encoding.LINEAR16) -> bytes:
    async with AsyncClient(f"127.0.0.1:{running.orchestrator.port}") as client:
        return await client.synthesize(words, seed=7, sample_rate=rate, encoding=encoding).read()


@pytest.mark.parametrize(
    ("query", "rate", "encoding"),
    [
        ({"voice": "anna", "language": "en-US", "sampleRate": 8_000}, 8_000, Encoding.LINEAR16),
        ({"voice": "anna", "language": "en-US", "sampleRate": 16_000}, 16_000, Encoding.LINEAR16),
        ({}, 8_000, Encoding.LINEAR16),
        ({"encoding": "mulaw"}, 8_000, Encoding.MULAW),
        ({"voice": "alloy", "language": "multi", "sampleRate": 24_000, "unknown": 1}, 24_000, Encoding.LINEAR16),
    ],
)
@pytest.mark.parametrize("cut", [3, 1_000])
async def test_the_speech_is_that_of_the_other_apis(
    ws: ClientConnection, running: Stack, rate: int, encoding: Encoding, cut: int
) -> None:
    assert await greeting(ws) == {"type": "connect", "data": {"sample_rate": rate, "base64_encoding": False}}
    await send(ws, *(text(TEXT[at : at + cut]) for at in range(0, len(TEXT), cut)), FLUSH, STOP)
    audio, messages, code = await until_closed(ws)
    assert audio == await speech_of(running, TEXT, rate, encoding)
    assert (messages, code) == ([], 1000)


async def test_each_flush_ends_a_text_and_the_next_follows(ws: ClientConnection, running: Stack) -> None:
    await greeting(ws)
    await send(ws, text("first"), FLUSH, FLUSH, text("second"), FLUSH, text(" \n"), FLUSH, text(""), FLUSH, STOP)
    audio, messages, _ = await until_closed(ws)
    wanted = [await speech_of(running, words, 8_000) for words in ("first", "second")]
    assert (audio, messages) == (b"".join(wanted), [])


@pytest.mark.start(query={"sampleRate": 24_000})
async def test_audio_comes_while_the_text_is_still_arriving(ws: ClientConnection, running: Stack) -> None:
    await greeting(ws)
    await send(ws, text("everlasting more"))
    first = await ws.recv()
    assert isinstance(first, bytes)
    await send(ws, {"type": "keepalive"}, text(" text"), FLUSH, STOP)
    audio, _, _ = await until_closed(ws)
    assert first + audio == await speech_of(running, "everlasting more text", 24_000)


@pytest.mark.start(query={"sampleRate": 24_000})
async def test_clear_interrupts_and_drops_what_waits(ws: ClientConnection, running: Stack) -> None:
    gate = hold_back(running)
    await greeting(ws)
    await send(ws, text("everlasting"), FLUSH, text("waiting"), FLUSH, text("half a"))
    await busy(running, "token2wav")
    await send(ws, CLEAR)
    await all_idle(running)
    gate.set()
    await send(ws, text("word"), FLUSH, STOP)
    audio, messages, code = await until_closed(ws)
    assert audio == await speech_of(running, "word", 24_000)
    assert (messages, code) == ([], 1000)


async def test_clear_interrupts_after_stop(ws: ClientConnection, running: Stack) -> None:
    hold_back(running)
    await greeting(ws)
    await send(ws, text("everlasting"), FLUSH, STOP)
    await busy(running, "token2wav")
    await send(ws, CLEAR)
    assert await until_closed(ws) == (b"", [], 1000)
    await all_idle(running)


async def test_clear_when_nothing_is_spoken_does_nothing(ws: ClientConnection, running: Stack) -> None:
    await greeting(ws)
    await send(ws, CLEAR, FLUSH, text("word"), FLUSH, STOP)
    assert (await until_closed(ws))[0] == await speech_of(running, "word", 8_000)


async def test_hanging_up_cancels_every_stage(ws: ClientConnection, running: Stack) -> None:
    hold_back(running)
    await greeting(ws)
    await send(ws, text("everlasting more"))
    await busy(running, "token2wav")
    await ws.close()
    await all_idle(running)


@pytest.mark.start(attempts=1)
async def test_a_text_that_fails_is_reported_and_the_call_goes_on(ws: ClientConnection, running: Stack) -> None:
    hook(running, "token2wav", abort_once(grpc.StatusCode.INTERNAL, "broken", at=0))
    await greeting(ws)
    await send(ws, text("everlasting"), FLUSH)
    message = json.loads(await ws.recv())
    assert (message["type"], bool(message["error"])) == ("error", True)
    await send(ws, text("word"), FLUSH, STOP)
    audio, messages, code = await until_closed(ws)
    assert audio == await speech_of(running, "word", 8_000)
    assert (messages, code) == ([], 1000)


@pytest.mark.start(attempts=1)
async def test_of_a_text_whose_beginning_failed_the_rest_is_not_spoken(ws: ClientConnection, running: Stack) -> None:
    hook(running, "token2wav", abort_once(grpc.StatusCode.INTERNAL, "broken", at=0))
    await greeting(ws)
    await send(ws, text("everlasting "), text("more "))
    assert json.loads(await ws.recv())["type"] == "error"
    await send(ws, text("rest"), FLUSH, text("word"), FLUSH, STOP)
    audio, _, _ = await until_closed(ws)
    assert audio == await speech_of(running, "word", 8_000)


MALFORMED: list[tuple[str | bytes, str]] = [
    (b"\x00", "a binary frame came"),
    ("{", "a message is not JSON"),
    ("[" * 50_000, "a message nests arrays and objects more than 100 deep"),
    ("[]", "a message is no JSON object but list"),
    ("{}", "type: Field required"),
    ('{"type": 5}', "type: Input should be a valid string"),
    ('{"type": "stream", "text": 5}', "text: Input should be a valid string"),
    ('{"type": "stream", "text": "\\ud800"}', "half of a surrogate pair"),
    (json.dumps(text("x" * 100_000)), "characters, allowed are 100000"),
]


async def test_what_is_no_message_is_refused(served: Gateway, running: Stack) -> None:
    for sent, message in MALFORMED:
        async with connect(f"ws://{served.address}/jambonz/stream") as ws:
            await greeting(ws)
            await ws.send(sent)
            audio, (refusal,), code = await until_closed(ws)
        assert (audio, refusal["type"], code) == (b"", "error", 1008)
        assert message in refusal["error"]
    assert running.scripts["llm"][0].calls == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"sampleRate": 11_025}, "sampleRate is 11025, allowed are 8000, 16000, 24000, 32000, 48000"),
        ({"sampleRate": "x"}, "sampleRate: "),
        ({"encoding": "alaw"}, "encoding: "),
        ({"seed": -1}, "seed is outside of 0 to 2^64 - 1"),
    ],
)
async def test_an_address_that_asks_for_what_there_is_not_is_refused(ws: ClientConnection, message: str) -> None:
    _, (refusal,), code = await until_closed(ws)
    assert (message in refusal["error"], code) == (True, 1008)


async def test_other_messages_are_ignored(ws: ClientConnection, running: Stack) -> None:
    await greeting(ws)
    await send(ws, {"type": "connect"}, {"type": "keepalive"}, {"type": "news", "x": 1}, text("word"), FLUSH, STOP)
    assert (await until_closed(ws))[0] == await speech_of(running, "word", 8_000)


async def test_what_waits_is_bounded(ws: ClientConnection, running: Stack) -> None:
    hook(running, "token2wav", hang)
    await greeting(ws)
    piece = text("a " * 45_000)
    await send(ws, text("everlasting"), FLUSH, piece, piece, FLUSH, piece)
    _, (refusal,), code = await until_closed(ws)
    assert (refusal["error"], code) == (
        f"more than the {MOST_CHARACTERS} characters allowed wait to be spoken",
        1008,
    )
    await all_idle(running)


async def test_how_many_texts_wait_is_bounded(ws: ClientConnection, running: Stack) -> None:
    hook(running, "token2wav", hang)
    await greeting(ws)
    await send(ws, *[text("word"), FLUSH] * 65)
    _, (refusal,), code = await until_closed(ws)
    assert (refusal["error"], code) == ("more than the 64 texts allowed wait to be spoken", 1008)
    await all_idle(running)


async def test_a_caller_that_says_nothing_is_let_go(served: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_stream, "IDLE_SECONDS", 0.2)
    async with connect(f"ws://{served.address}/jambonz/stream") as ws:
        await greeting(ws)
        _, (refusal,), code = await until_closed(ws)
    assert ("no message came within 0.2 s" in refusal["error"], code) == (True, 1008)


@pytest.mark.start(settings={"reader_seconds": 0.5}, query={"sampleRate": 48_000})
async def test_a_caller_that_reads_nothing_is_disconnected(ws: ClientConnection, running: Stack) -> None:
    await greeting(ws)
    ws.transport.pause_reading()
    await send(ws, text(" ".join(["everlasting"] * 200)), FLUSH)
    await busy(running, "token2wav")
    await all_idle(running)
    ws.transport.abort()
