"""Requests over HTTP and WebSockets: each kind, how often it comes, and how it has to end."""

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from bench.load.stack import TEXTS
from bench.voices_soak import recording
from bench.whole_soak.over_grpc import FRAGMENT
from bench.whole_soak.tally import HEARD, HUNG_UP, REFUSED
from bench.whole_soak.up import Up
from cosyserve.keys.secret import new_secret

_SECONDS = 900.0
_FULL, _FULL_TYPE = 429, "rate_limit_error"
"""The status, and the type of error objects, of one that may ask again later."""
_COME_BACK = 1013
"""Close code of RFC 6455's registry."""


class WrongAnswer(Exception):
    """Another answer than the kind of request has to get."""


class HttpCallers:
    """All over one pool of connections, which `close` closes; a WebSocket is a connection of its
    own.
    """

    def __init__(self, up: Up, rng: random.Random) -> None:
        self._up, self._rng = up, rng
        self._http = self._client()
        self._made = 0

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            base_url=f"https://{self._up.http}",
            verify=self._up.trust,
            timeout=_SECONDS,
            headers={"authorization": f"Bearer {self._up.key}"},
        )

    async def close(self) -> None:
        await self._http.aclose()

    def kinds(self) -> dict[str, tuple[float, Callable[[], Awaitable[str]]]]:
        """Weight and request, by name."""
        return {
            "HTTP pcm": (6, lambda: self._speech(response_format="pcm")),
            "HTTP sse": (4, lambda: self._speech(response_format="pcm", stream_format="sse", word_times=True)),
            "HTTP opus, mp3, aac, flac": (2, self._compressed),
            "HTTP, hung up": (4, self._hung_up),
            "HTTP, a connection of its own": (2, self._own_connection),
            "HTTP, no text": (1, lambda: self._refused("/v1/audio/speech", 400, {"input": ""})),
            "HTTP, no such page": (0.5, lambda: self._refused("/v1/audio/nothing", 404, {})),
            "HTTP, an unknown key": (1, self._unknown_key),
            "HTTP, a key with a limit": (1, self._limited),
            "HTTP, a voice made and deleted": (1, self._voice),
            "HTTP, ElevenLabs": (1, self._elevenlabs),
            "HTTP, CosyVoice": (1, self._cosyvoice),
            "WebSocket, two utterances": (3, self._socket),
            "WebSocket, cancelled": (2, self._socket_cancelled),
            "WebSocket, hung up": (2, self._socket_hung_up),
        }

    def _body(self, **fields: Any) -> dict[str, Any]:
        return {"input": self._rng.choice(TEXTS), "seed": self._rng.randrange(1 << 32), **fields}

    async def _speech(self, client: httpx2.AsyncClient | None = None, **fields: Any) -> str:
        answer = await (client or self._http).post("/v1/audio/speech", json=self._body(**fields))
        return _outcome(answer)

    async def _compressed(self) -> str:
        return await self._speech(response_format=self._rng.choice(("opus", "mp3", "aac", "flac")))

    async def _hung_up(self) -> str:
        body = self._body(response_format="pcm")
        try:
            async with (
                asyncio.timeout(self._rng.uniform(0.0, 0.5)),
                self._http.stream("POST", "/v1/audio/speech", json=body) as answer,
            ):
                await answer.aread()
                return _outcome(answer)
        except TimeoutError:
            return HUNG_UP

    async def _own_connection(self) -> str:
        async with self._client() as client:
            return await self._speech(client, response_format="wav")

    async def _refused(self, path: str, status: int, body: dict[str, Any]) -> str:
        answer = await self._http.post(path, json=body)
        if answer.status_code != status:
            raise WrongAnswer(f"{answer.status_code} instead of {status}")
        return REFUSED

    async def _unknown_key(self) -> str:
        headers = {"authorization": f"Bearer {new_secret()}"}
        answer = await self._http.post("/v1/audio/speech", json=self._body(), headers=headers)
        if answer.status_code != 401:
            raise WrongAnswer(f"{answer.status_code} instead of 401")
        return REFUSED

    async def _limited(self) -> str:
        headers = {"authorization": f"Bearer {self._up.limited}"}
        return _outcome(await self._http.post("/v1/audio/speech", json=self._body(), headers=headers))

    async def _voice(self) -> str:
        self._made += 1
        voice = f"http-{self._rng.randrange(1 << 32):08x}-{self._made}"
        sent = {"audio_sample": ("a.wav", recording(self._made % 4))}
        answer = await self._http.post("/v1/audio/voices", files=sent, data={"name": "soak", "voice_id": voice})
        if answer.status_code == _FULL:
            return REFUSED
        _require(answer, 201)
        _require(await self._http.delete(f"/v1/audio/voices/{voice}"), 200)
        return HEARD

    async def _elevenlabs(self) -> str:
        text = {"text": self._rng.choice(TEXTS)}
        answer = await self._http.post("/v1/text-to-speech/alloy/stream?output_format=pcm_24000", json=text)
        return _outcome(answer)

    async def _cosyvoice(self) -> str:
        form = {"tts_text": self._rng.choice(TEXTS), "spk_id": "alloy"}
        return _outcome(await self._http.post("/inference_sft", data=form))

    def _connected(self) -> connect:
        headers = {"authorization": f"Bearer {self._up.key}"}
        return connect(
            f"wss://{self._up.http}/v1/audio/stream",
            ssl=self._up.trust,
            additional_headers=headers,
            open_timeout=_SECONDS,
            close_timeout=_SECONDS,
            ping_interval=None,
        )

    async def _ask(self, socket: ClientConnection) -> None:
        text = self._rng.choice(TEXTS)
        messages: list[dict[str, Any]] = [{"type": "setup", "seed": self._rng.randrange(1 << 32)}]
        messages += [{"type": "text", "text": text[at : at + FRAGMENT]} for at in range(0, len(text), FRAGMENT)]
        for message in (*messages, {"type": "end"}):
            await socket.send(json.dumps(message))

    async def _heard(self, socket: ClientConnection) -> str:
        """Until the summary; `refused` for an error that says that the server is full."""
        while True:
            try:
                message = await socket.recv()
            except ConnectionClosed as closed:
                if closed.rcvd is not None and closed.rcvd.code == _COME_BACK:
                    return REFUSED
                raise
            if isinstance(message, bytes):
                continue
            read = json.loads(message)
            if read["type"] == "error":
                if read["error"].get("type") != _FULL_TYPE:
                    raise WrongAnswer(str(read["error"]))
                return REFUSED
            if read["type"] == "summary":
                return HEARD

    async def _socket(self) -> str:
        async with asyncio.timeout(_SECONDS), self._connected() as socket:
            await self._ask(socket)
            if (outcome := await self._heard(socket)) == REFUSED:
                return outcome
            await self._ask(socket)
            return await self._heard(socket)

    async def _socket_cancelled(self) -> str:
        async with asyncio.timeout(_SECONDS), self._connected() as socket:
            await self._ask(socket)
            await asyncio.sleep(self._rng.uniform(0.0, 0.3))
            with contextlib.suppress(ConnectionClosed):  # behind the error, which `_heard` reads
                await socket.send(json.dumps({"type": "cancel"}))
            return await self._heard(socket)

    async def _socket_hung_up(self) -> str:
        async with asyncio.timeout(_SECONDS), self._connected() as socket:
            await self._ask(socket)
            await asyncio.sleep(self._rng.uniform(0.0, 0.3))
            socket.transport.abort()
        return HUNG_UP


def _outcome(answer: httpx2.Response) -> str:
    if answer.status_code == _FULL:
        return REFUSED
    _require(answer, 200)
    return HEARD


def _require(answer: httpx2.Response, status: int) -> None:
    if answer.status_code != status:
        raise WrongAnswer(f"{answer.status_code} instead of {status}: {answer.text[:200]}")
