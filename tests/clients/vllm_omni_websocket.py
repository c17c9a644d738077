"""vLLM-Omni's WebSocket `/v1/audio/speech/stream`, with the messages that vLLM-Omni documents."""

import asyncio
import base64
import io
import json
import urllib.request
import wave
from typing import Any

from calls import Calls, address
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

TEXT = "It works. The second sentence follows."
CONFIG = {"type": "session.config", "model": "any", "language": "English", "seed": 7}
STREAMED = {**CONFIG, "response_format": "pcm", "stream_audio": True}
DONE = {"type": "input.done"}
SECONDS = 120


async def utterance(ws: ClientConnection, *messages: dict[str, Any]) -> tuple[list[dict[str, Any]], bytes]:
    """Send these and `input.done`; the messages up to the end of the utterance, and its audio."""
    for message in (*messages, DONE):
        await ws.send(json.dumps(message))
    received: list[dict[str, Any]] = []
    audio = b""
    async with asyncio.timeout(SECONDS):
        while not received or received[-1]["type"] != "session.done":
            answer = await ws.recv()
            if isinstance(answer, bytes):
                audio += answer
            else:
                received.append(json.loads(answer))
    return received, audio


def spoken(received: list[dict[str, Any]]) -> dict[str, Any]:
    """`audio.done` of an utterance without an error."""
    assert [message["type"] for message in received if message["type"] != "audio.chunk"] == [
        "audio.start",
        "audio.done",
        "session.done",
    ], received
    done = received[-2]
    assert not done["error"]
    return done


def words(text: str) -> list[dict[str, Any]]:
    """As a language model writes them."""
    return [{"type": "input.text", "text": f"{word} "} for word in text.split()]


def by_http(url: str) -> bytes:
    fields = {"input": TEXT, "response_format": "pcm", "language": "English", "seed": 7}
    request = urllib.request.Request(
        f"{url}/v1/audio/speech", json.dumps(fields).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        body: bytes = response.read()
        return body


async def conversation(url: str, calls: Calls) -> None:
    socket = f"{url.replace('http', 'ws', 1)}/v1/audio/speech/stream"
    async with connect(socket, max_size=1 << 26) as ws:
        with calls.tried("stream_audio, text word by word") as found:
            received, audio = await utterance(ws, STREAMED, *words(TEXT))
            assert spoken(received)["total_bytes"] == len(audio)
            found.append(f"{len(audio) / 48_000:.2f} s")
        with calls.tried("split_granularity none: the samples of /v1/audio/speech"):
            text = {"type": "input.text", "text": TEXT}
            received, audio = await utterance(ws, {**STREAMED, "split_granularity": "none"}, text)
            assert spoken(received)["utterance_index"] == 1
            assert received[0]["sentence_text"] == TEXT
            assert audio == await asyncio.to_thread(by_http, url)
        with calls.tried("a wav file in one message"):
            received, audio = await utterance(ws, CONFIG, *words(TEXT))
            with wave.open(io.BytesIO(audio)) as file:
                assert file.getnframes() > file.getframerate() / 2
            assert spoken(received)["total_bytes"] == len(audio)
        with calls.tried("word_timestamps: audio.chunk") as found:
            received, audio = await utterance(ws, {**STREAMED, "word_timestamps": True}, *words(TEXT))
            spoken(received)
            chunks = [message for message in received if message["type"] == "audio.chunk"]
            assert audio == b""
            assert sum(len(base64.b64decode(chunk["audio_b64"])) for chunk in chunks) == received[-2]["total_bytes"]
            times = chunks[-1]["timestamps"]
            found.append("the model has no word times" if times is None else f"{len(times)} words")
        with calls.tried("an unknown message is an error that ends nothing"):
            received, _ = await utterance(ws, {"type": "input.txt"}, *words("It works."))
            assert received[0]["type"] == "error"
        with calls.tried("an unknown voice fails its utterance alone"):
            received, _ = await utterance(ws, {**STREAMED, "voice": "nobody"}, *words(TEXT))
            assert received[0]["type"] == "error"
            assert received[-2]["error"]
        with calls.tried("session.close"):
            await ws.send(json.dumps({"type": "session.close"}))
            try:
                await asyncio.wait_for(ws.recv(), SECONDS)
            except ConnectionClosed:
                assert ws.close_code == 1000


def main() -> None:
    url, calls = address(), Calls.of("websockets")
    asyncio.run(conversation(url, calls))
    calls.end()


if __name__ == "__main__":
    main()
