"""Whether each API gives the same samples for the same text, voice and seed."""

import asyncio
import json
import urllib.error
import urllib.request
from dataclasses import dataclass

from websockets.asyncio.client import connect

from cosyserve.client import AsyncClient
from tools.clients.server import Server

TEXT = "One seed gives one sound, whichever way you ask for it. Here it comes again."
VOICE, SEED = "af_heart", 7
_SECONDS = 120.0


@dataclass(frozen=True)
class SameSamples:
    """samples: by API, as bytes; None where the gateway has no such API."""

    samples: dict[str, bytes | None]

    @property
    def exceeded(self) -> list[str]:
        """The APIs whose samples are not those over gRPC, in words."""
        expected = self.samples["gRPC"]
        return [
            f"{way} gives other samples than gRPC ({len(given) // 2} of them, gRPC {len(expected or b'') // 2})"
            for way, given in self.samples.items()
            if given is not None and given != expected
        ]

    def lines(self) -> list[str]:
        """One for each API, for people."""
        expected = self.samples["gRPC"]
        return [
            f"{way}: {'no such API' if given is None else 'the same' if given == expected else 'different'}"
            for way, given in self.samples.items()
        ]


async def same_samples(server: Server) -> SameSamples:
    """Speak one text over every API. Raises what a client raises when it is refused."""
    async with AsyncClient(server.grpc) as client:
        over_grpc = await client.synthesize(TEXT, voice=VOICE, seed=SEED).read()
    ways = {
        "gRPC": over_grpc,
        "OpenAI": await asyncio.to_thread(_openai, server.http),
        "WebSocket, whole text": await _websocket(server.http, [TEXT]),
        "WebSocket, word by word": await _websocket(server.http, [f"{word} " for word in TEXT.split()]),
        "ElevenLabs": await asyncio.to_thread(_elevenlabs, server.http),
    }
    return SameSamples(ways)


def _openai(http: str) -> bytes:
    fields = {"input": TEXT, "voice": VOICE, "seed": SEED, "response_format": "pcm"}
    answer = _posted(f"{http}/v1/audio/speech", fields)
    if answer is None:
        raise ValueError("the gateway has no /v1/audio/speech")
    return answer


def _elevenlabs(http: str) -> bytes | None:
    path = f"/v1/text-to-speech/{VOICE}/stream?output_format=pcm_24000"
    return _posted(f"{http}{path}", {"text": TEXT, "seed": SEED, "model_id": "eleven_flash_v2_5"})


def _posted(url: str, fields: dict[str, object]) -> bytes | None:
    """None where there is no such path."""
    request = urllib.request.Request(  # noqa: S310 - the scheme is ours
        url, json.dumps(fields).encode(), headers={"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return None


async def _websocket(http: str, pieces: list[str]) -> bytes:
    audio = b""
    setup = {"type": "setup", "voice": VOICE, "seed": SEED}
    async with asyncio.timeout(_SECONDS), connect(f"{http.replace('http', 'ws', 1)}/v1/audio/stream") as ws:
        for message in (setup, *({"type": "text", "text": piece} for piece in pieces), {"type": "end"}):
            await ws.send(json.dumps(message))
        while True:
            received = await ws.recv()
            if isinstance(received, bytes):
                audio += received
            elif json.loads(received)["type"] == "error":
                raise ValueError(f"the gateway answered {received}")
            elif json.loads(received)["type"] == "summary":
                return audio
