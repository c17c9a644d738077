"""What jambonz sends to a speech vendor of one's own, by its published sources: a text by HTTP, and
tokens by WebSocket. No client of jambonz can be had by itself. Needs the package `websockets`.

python tests/clients/jambonz_scripted.py http://127.0.0.1:8080
"""

import argparse
import asyncio
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

CLIENT, VERSION = "jambonz, scripted", "custom vendor API of 2025"
KEY = {"authorization": "Bearer of-jambonz"}
PIECES = ["The train to Berlin ", "leaves at nine. ", "It goes from plat", "form four."]
TEXT = "".join(PIECES)
SECONDS = 120
FLUSH, CLEAR, STOP = ({"type": kind} for kind in ("flush", "clear", "stop"))


def posted(url: str, accept: str | None = None, **fields: str) -> tuple[int, str, bytes]:
    """Status, content type and body."""
    body = {"vendor": "custom:cosyserve", "language": "en-US", "voice": "alloy", "type": "text", "text": TEXT}
    headers = {"content-type": "application/json", **KEY, **({"accept": accept} if accept else {})}
    request = urllib.request.Request(url, json.dumps(body | fields).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            return response.status, response.headers["content-type"], response.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.headers["content-type"], refusal.read()


async def by_http(url: str) -> str:
    """The formats that jambonz takes."""
    path, sizes = f"{url}/jambonz/synthesize?seed=7", []
    for accept, query, wanted in (
        ("audio/mpeg", "", "audio/mpeg"),
        (None, "", "audio/mpeg"),
        ("audio/wav", "", "audio/wav"),
        ("audio/l16;rate=8000", "", "audio/l16;rate=8000"),
        ("audio/mpeg", "&format=l16&rate=16000", "audio/l16;rate=16000"),
    ):
        status, media_type, audio = await asyncio.to_thread(posted, path + query, accept, text="It works.")
        assert (status, media_type) == (200, wanted), (status, media_type, audio[:200])
        sizes.append(len(audio))
    assert sizes[0] == sizes[1]
    assert abs(sizes[4] - 2 * sizes[3]) <= 4, sizes
    return f"{sizes[3] / 16_000:.2f} s"


async def ssml(url: str) -> str:
    document = '<speak>It <break time="200ms"/> works.</speak>'
    status, _, audio = await asyncio.to_thread(
        posted, f"{url}/jambonz/synthesize?format=l16", None, type="ssml", text=document
    )
    assert (status, len(audio) > 8_000) == (200, True), (status, audio[:200])
    return ""


async def refused(url: str) -> str:
    status, _, body = await asyncio.to_thread(posted, f"{url}/jambonz/synthesize", None, voice="no-such-voice")
    assert (status, "error" in json.loads(body)) == (404, True), (status, body)
    return "404"


def stream(url: str, query: str) -> connect:
    """sampleRate, voice and language, as jambonz writes them."""
    address = url.replace("http", "ws", 1)
    return connect(f"{address}/jambonz/stream?voice=alloy&language=en-US&{query}&seed=7", additional_headers=KEY)


async def send(ws: ClientConnection, *messages: dict[str, str]) -> None:
    for message in messages:
        await ws.send(json.dumps(message))


def text(words: str) -> dict[str, str]:
    return {"type": "stream", "text": words}


async def greeting(ws: ClientConnection, rate: int) -> None:
    message = json.loads(await ws.recv())
    assert message == {"type": "connect", "data": {"sample_rate": rate, "base64_encoding": False}}, message


async def rest(ws: ClientConnection) -> bytes:
    """The audio until the server closes normally."""
    audio = b""
    try:
        while True:
            received = await ws.recv()
            assert isinstance(received, bytes), received
            audio += received
    except ConnectionClosed as closed:
        code = closed.rcvd.code if closed.rcvd else None
    assert code == 1000, code
    return audio


async def tokens(url: str) -> str:
    """Audio begins before the text is complete; the samples are those of HTTP."""
    async with stream(url, "sampleRate=8000") as ws:
        await greeting(ws, 8_000)
        await send(ws, *map(text, PIECES[:3]))
        first = await ws.recv()
        assert isinstance(first, bytes), first
        await send(ws, text(PIECES[3]), FLUSH, STOP)
        audio = first + await rest(ws)
    _, _, whole = await asyncio.to_thread(posted, f"{url}/jambonz/synthesize?format=l16&seed=7")
    assert audio == whole, f"{len(audio)} bytes, over HTTP {len(whole)}"
    return f"{len(audio) / 16_000:.2f} s, the samples of HTTP"


async def mulaw(url: str) -> str:
    async with stream(url, "sampleRate=8000&encoding=mulaw") as ws:
        await greeting(ws, 8_000)
        await send(ws, text("It works."), FLUSH, STOP)
        return f"{len(await rest(ws)) / 8_000:.2f} s"


async def several(url: str) -> str:
    """One connection for the texts of a call, with a sign of life between them."""
    async with stream(url, "sampleRate=16000") as ws:
        await greeting(ws, 16_000)
        await send(ws, text("First this."), FLUSH, {"type": "keepalive"}, text("Then that."), FLUSH, STOP)
        return f"{len(await rest(ws)) / 32_000:.2f} s"


async def interrupted(url: str) -> str:
    """clear: what follows is the next text and nothing of the interrupted one."""
    async with stream(url, "sampleRate=8000") as ws:
        await greeting(ws, 8_000)
        await send(ws, text(TEXT * 20), FLUSH)
        first = await ws.recv()
        assert isinstance(first, bytes), first
        await send(ws, CLEAR, STOP)
        left = len(await rest(ws))
    assert left < 16_000 * 20, f"{left} bytes came after the interruption"
    return f"{left / 16_000:.1f} s were on their way"


async def run(url: str) -> bool:
    calls: dict[str, Callable[[str], Awaitable[str]]] = {
        "POST synthesize, mp3, wav, l16": by_http,
        "POST synthesize, SSML": ssml,
        "POST synthesize, unknown voice": refused,
        "stream, flush, stop": tokens,
        "stream, mulaw": mulaw,
        "stream, texts of one call": several,
        "stream, clear": interrupted,
    }
    failed = False
    for name, call in calls.items():
        try:
            async with asyncio.timeout(SECONDS):
                result = ", ".join(filter(None, ("ok", await call(url))))
        except Exception as error:
            failed, result = True, f"{type(error).__name__}: {error}"
        print(json.dumps({"client": CLIENT, "version": VERSION, "call": name, "result": result}), flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="of the gateway, such as http://127.0.0.1:8080")
    return 1 if asyncio.run(run(parser.parse_args().address.rstrip("/"))) else 0


if __name__ == "__main__":
    sys.exit(main())
