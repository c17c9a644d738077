"""A plain WebSocket client of /v1/audio/stream: words, flush, cancel, audio as JSON, a refusal."""

import asyncio
import base64
import json
from typing import Any

from calls import Calls, Refused, address
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

TEXT = "The train leaves at nine. Please be there in time."
SETUP = {"type": "setup", "voice": "af_heart", "seed": 7}
END = {"type": "end"}
_SECONDS = 90


def text(piece: str) -> dict[str, Any]:
    return {"type": "text", "text": piece}


async def send(ws: ClientConnection, *messages: dict[str, Any]) -> None:
    for message in messages:
        await ws.send(json.dumps(message))


async def utterance(ws: ClientConnection) -> tuple[list[dict[str, Any]], bytes]:
    """Messages and audio up to the summary or the error."""
    messages: list[dict[str, Any]] = []
    audio = b""
    async with asyncio.timeout(_SECONDS):
        while not messages or messages[-1]["type"] not in ("summary", "error"):
            received = await ws.recv()
            message = {"type": "bytes"} if isinstance(received, bytes) else json.loads(received)
            if message["type"] == "bytes":
                audio += received  # type: ignore[operator]
            elif message["type"] == "audio":
                audio += base64.b64decode(message["audio"])
            else:
                messages.append(message)
    return messages, audio


async def spoken(url: str, calls: Calls) -> None:
    async with connect(url) as ws:
        with calls.tried("text word by word, binary audio, word times") as found:
            await send(ws, SETUP, *[text(word + " ") for word in TEXT.split()], END)
            messages, binary = await utterance(ws)
            assert (messages[0]["type"], messages[-1]["type"]) == ("header", "summary"), messages
            assert messages[-1]["audio_seconds"] == len(binary) / 48_000
            heard = [word["word"] for message in messages for word in message.get("words", ())]
            assert heard == TEXT.replace(".", "").split(), heard
            found.append(f"{messages[-1]['audio_seconds']:.1f} s")
        with calls.tried("the same connection again, JSON audio"):
            await send(ws, SETUP | {"audio": "json"}, text(TEXT), END)
            assert (await utterance(ws))[1] == binary
        with calls.tried("flush"):
            await send(ws, SETUP, text("Hello"), {"type": "flush"})
            async with asyncio.timeout(_SECONDS):
                while not isinstance(await ws.recv(), bytes):
                    pass
            await send(ws, END)
            assert (await utterance(ws))[0][-1]["type"] == "summary"
        with calls.tried("cancel, then the next utterance"):
            await send(ws, SETUP, text(TEXT * 4), {"type": "cancel"})
            assert (await utterance(ws))[0][-1]["cancelled"]
            await send(ws, SETUP, text(TEXT), END)
            assert (await utterance(ws))[1] == binary


async def refused(url: str, calls: Calls) -> None:
    with calls.tried("an unknown field: an error, then close code 1008"):
        async with connect(url) as ws:
            await send(ws, SETUP | {"sped": 1})
            messages, _ = await utterance(ws)
            assert "sped" in messages[-1]["error"]["message"]
            with Refused(ConnectionClosed):
                await ws.recv()
            assert ws.close_code == 1008


async def main() -> None:
    url, calls = f"{address().replace('http', 'ws', 1)}/v1/audio/stream", Calls.of("websockets")
    await spoken(url, calls)
    await refused(url, calls)
    calls.end()


if __name__ == "__main__":
    asyncio.run(main())
