"""The client of the package `wyoming`, which Home Assistant uses: describe, ping, synthesize,
streamed text, an error, a hang-up. Needs that package alone.

python tests/clients/wyoming_client.py 127.0.0.1:10200 [http://127.0.0.1:8080]

With the second address, pcm over HTTP is compared with the audio of the same seed.
"""

import argparse
import asyncio
import json
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from importlib.metadata import version

from wyoming.audio import AudioChunk, AudioStart
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeVoice

SEED = 7
PIECES = ["The train to Berlin ", "leaves at nine. ", "It goes from plat", "form four."]
TEXT = "".join(PIECES)
SECONDS = 120
Call = Callable[[AsyncTcpClient], Awaitable[str]]


async def read(client: AsyncTcpClient) -> Event:
    event = await client.read_event()
    assert event is not None, "the connection was closed"
    assert not Error.is_type(event.type), Error.from_event(event).text
    return event


async def audio_until(client: AsyncTcpClient, last: str) -> bytes:
    """The samples between audio-start and audio-stop, up to an event of this type."""
    start = AudioStart.from_event(await read(client))
    assert (start.rate, start.width, start.channels) == (24_000, 2, 1), start
    audio, kinds = b"", []
    while not kinds or kinds[-1] != last:
        event = await read(client)
        kinds.append(event.type)
        if AudioChunk.is_type(event.type):
            audio += AudioChunk.from_event(event).audio
    assert kinds.count("audio-stop") == 1, kinds
    assert len(audio) > 24_000, f"{len(audio)} bytes"
    return audio


async def describe(client: AsyncTcpClient) -> str:
    await client.write_event(Describe().event())
    (program,) = Info.from_event(await read(client)).tts
    assert program.supports_synthesize_streaming
    assert program.voices
    return f"{len(program.voices)} voices"


async def ping(client: AsyncTcpClient) -> str:
    await client.write_event(Ping(text="x").event())
    assert Pong.from_event(await read(client)).text == "x"
    return ""


async def by_voice(client: AsyncTcpClient) -> str:
    """Each voice by its name, and one by its language."""
    await client.write_event(Describe().event())
    voices = Info.from_event(await read(client)).tts[0].voices
    named = [SynthesizeVoice(name=voice.name) for voice in voices[:3]]
    for voice in (*named, SynthesizeVoice(language=voices[0].languages[0])):
        await client.write_event(Synthesize(text="It works.", voice=voice).event())
        await audio_until(client, "audio-stop")
    return f"{len(named)} by name, 1 by language"


async def whole(client: AsyncTcpClient, pcm: bytes | None) -> str:
    await client.write_event(Event("synthesize", {"text": TEXT, "seed": SEED}))
    audio = await audio_until(client, "audio-stop")
    assert pcm is None or audio == pcm, "other samples than over HTTP"
    return f"{len(audio) / 48_000:.2f} s" + (", the samples of HTTP" if pcm else "")


async def streamed(client: AsyncTcpClient, pcm: bytes | None) -> str:
    """As Home Assistant does it, which sends the whole text once more at the end."""
    await client.write_event(Event("synthesize-start", {"seed": SEED}))
    for piece in PIECES[:3]:
        await client.write_event(SynthesizeChunk(text=piece).event())
    first = await read(client)  # before the text is complete
    assert AudioStart.is_type(first.type), first.type
    chunk = AudioChunk.from_event(await read(client))
    await client.write_event(SynthesizeChunk(text=PIECES[3]).event())
    await client.write_event(Synthesize(text=TEXT).event())
    await client.write_event(SynthesizeStop().event())
    audio, kinds = chunk.audio, []
    while not kinds or kinds[-1] != "synthesize-stopped":
        event = await read(client)
        kinds.append(event.type)
        if AudioChunk.is_type(event.type):
            audio += AudioChunk.from_event(event).audio
    assert kinds[-2:] == ["audio-stop", "synthesize-stopped"], kinds[-2:]
    assert pcm is None or audio == pcm, "other samples than over HTTP"
    return f"{len(audio) / 48_000:.2f} s, begins before the text is complete"


async def refused(client: AsyncTcpClient) -> str:
    await client.write_event(Synthesize(text="Hello.", voice=SynthesizeVoice(name="no-such-voice")).event())
    event = await client.read_event()
    assert event is not None
    assert Error.is_type(event.type), event.type
    assert await client.read_event() is None
    return f"error {Error.from_event(event).code}, then closed"


async def hang_up(client: AsyncTcpClient) -> str:
    await client.write_event(SynthesizeStart().event())
    await client.write_event(SynthesizeChunk(text=TEXT).event())
    await read(client)
    return "in the middle of the audio"


async def run(address: str, pcm: bytes | None) -> bool:
    host, _, port = address.rpartition(":")
    calls: dict[str, Call] = {
        "describe, info": describe,
        "ping, pong": ping,
        "synthesize": lambda client: whole(client, pcm),
        "synthesize, voices": by_voice,
        "synthesize-start, -chunk, -stop": lambda client: streamed(client, pcm),
        "synthesize of an unknown voice": refused,
        "hang up": hang_up,
    }
    failed = False
    for name, call in calls.items():
        try:
            async with asyncio.timeout(SECONDS), AsyncTcpClient(host, int(port)) as client:
                result = ", ".join(filter(None, ("ok", await call(client))))
        except Exception as error:
            failed, result = True, f"{type(error).__name__}: {error}"
        row = {"client": "wyoming", "version": version("wyoming"), "call": name, "result": result}
        print(json.dumps(row), flush=True)
    return failed


def over_http(url: str) -> bytes:
    body = json.dumps({"input": TEXT, "seed": SEED, "response_format": "pcm"}).encode()
    request = urllib.request.Request(f"{url}/v1/audio/speech", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        audio: bytes = response.read()
    return audio


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="of Wyoming, such as 127.0.0.1:10200")
    parser.add_argument("http", nargs="?", help="of the gateway, such as http://127.0.0.1:8080")
    given = parser.parse_args()
    pcm = over_http(given.http.rstrip("/")) if given.http else None
    return 1 if asyncio.run(run(given.address, pcm)) else 0


if __name__ == "__main__":
    sys.exit(main())
