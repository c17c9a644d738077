"""Callers that write down what they see: how each request ended, which limit refused it, and when
its first byte of audio came.

What is written down is what `cosyserve_requests_total` and the others have to say at the end. Each
request is a plain call of gRPC or HTTP, without a client of ours that might ask again.
"""

import asyncio
import json
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx2
from google.rpc import error_details_pb2, status_pb2
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from cosyserve.metrics.names import GATEWAY, ORCHESTRATOR
from cosyserve.tasks import Changes
from cosyserve.v1 import synthesis_pb2 as pb
from cosyserve.v1 import synthesis_pb2_grpc
from tests.stacks.key_holders import KeyHolder

_STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 413: "RESOURCE_EXHAUSTED"}
_STATUSES |= {429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
_LIMITS = {
    "streams are in use": "streams",
    "requests a minute are used": "rate",
    "characters a minute are used": "characters",
    "requests at once": "concurrency",
    "WebSockets are being served": "connections",
    "the body is larger": "body",
    "whole files hold": "memory",
}
"""What a caller reads, and the limit that it means."""


@dataclass
class Seen:
    """By service; the orchestrator's requests include those that the gateway passed on."""

    requests: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By service, method and status."""
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By service and limit."""
    sounded: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Requests with a first byte of audio, by service and method."""
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """From the request to that byte, by the method or the API that was asked."""

    changes: Changes = field(default_factory=Changes)
    """Notified at each first byte."""

    @property
    def sounding(self) -> int:
        """Requests of which a caller has heard something."""
        return sum(map(len, self.seconds.values()))

    def heard(self, method: str, begun: float, *services: tuple[str, str]) -> None:
        """The first byte is there. services: with the method that each of them was asked for."""
        self.sounded.update(services)
        self.seconds[method].append(time.monotonic() - begun)
        self.changes.notify()

    def ended(self, service: str, method: str, status: str, said: str = "") -> None:
        """said: the message of a failure."""
        self.requests[service, method, status] += 1
        if limit := next((limit for words, limit in _LIMITS.items() if words in said), ""):
            self.refusals[service, limit] += 1
        else:
            assert status != "RESOURCE_EXHAUSTED", said


class GrpcCaller:
    """Calls the orchestrator. The methods return the status."""

    def __init__(self, channel: grpc.aio.Channel, seen: Seen) -> None:
        self._channel, self._seen = channel, seen
        self._stub = synthesis_pb2_grpc.SynthesisServiceStub(channel)

    async def synthesize(self, key: KeyHolder | None, text: str, *, voice: str = "", hang_up: bool = False) -> str:
        """hang_up: at the first audio."""
        request, begun = pb.SynthesizeRequest(text=text, voice=voice), time.monotonic()
        call = self._stub.Synthesize(request, metadata=_metadata(key))
        return await self._read("Synthesize", call, begun, hang_up=hang_up)

    async def streaming(self, key: KeyHolder, *texts: str, seconds: float | None = None) -> str:
        """Text in pieces; without any the call stays open. seconds: until its deadline."""
        begun, call = time.monotonic(), self._stub.StreamingSynthesize(metadata=_metadata(key), timeout=seconds)
        try:
            await call.write(pb.StreamingSynthesizeRequest(setup=pb.StreamingSynthesizeSetup()))
            await call.initial_metadata()
            for text in texts:
                await call.write(pb.StreamingSynthesizeRequest(text=text))
            if texts:
                await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # reading raises the reason
        return await self._read("StreamingSynthesize", call, begun)

    async def unary(self, key: KeyHolder | None, text: str) -> str:
        request = pb.SynthesizeUnaryRequest(text=text)
        return await self._awaited("SynthesizeUnary", self._stub.SynthesizeUnary(request, metadata=_metadata(key)))

    async def get_voice(self, key: KeyHolder, voice: str) -> str:
        request = pb.SynthesisServiceGetVoiceRequest(id=voice)
        return await self._awaited("GetVoice", self._stub.GetVoice(request, metadata=_metadata(key)))

    async def no_method(self, key: KeyHolder) -> str:
        """A method that there is not."""
        call = self._channel.unary_unary("/cosyserve.v1.SynthesisService/Sing")
        return await self._awaited("other", call(b"", metadata=_metadata(key)))

    async def _read(self, method: str, call: Any, begun: float, *, hang_up: bool = False) -> str:
        heard, status, said = False, "OK", ""
        try:
            async for reply in call:
                if reply.audio and not heard:
                    heard = True
                    self._seen.heard(method, begun, (ORCHESTRATOR, method))
                if heard and hang_up:
                    call.cancel()
                    status = "CANCELLED"
                    break
        except grpc.aio.AioRpcError as error:
            status, said = error.code().name, _said(error)
        except asyncio.CancelledError:
            # Of a held stream that is over.
            call.cancel()
            self._seen.ended(ORCHESTRATOR, method, "CANCELLED")
            raise
        self._seen.ended(ORCHESTRATOR, method, status, said)
        return status

    async def _awaited(self, method: str, call: Any) -> str:
        begun, status, said = time.monotonic(), "OK", ""
        try:
            await call
        except grpc.aio.AioRpcError as error:
            status, said = error.code().name, _said(error)
        if status == "OK" and method == "SynthesizeUnary":
            self._seen.heard(method, begun, (ORCHESTRATOR, method))
        self._seen.ended(ORCHESTRATOR, method, status, said)
        return status


class HttpCaller:
    """Calls the gateway. The methods return the name of the gRPC status that the answer means."""

    def __init__(self, http: httpx2.AsyncClient, address: str, seen: Seen) -> None:
        self._http, self._address, self._seen = http, address, seen

    async def openai(
        self, key: KeyHolder | None, text: str, *, hang_up: bool = False, passed_on: str = "Synthesize"
    ) -> str:
        """The status. hang_up: at the first audio. passed_on: method of the orchestrator that it
        becomes, empty: none, unless the gateway itself refuses it."""
        body = {"model": "tts-1", "voice": "", "input": text, "response_format": "pcm"}
        return await self._post("openai", "/v1/audio/speech", key, {"json": body}, passed_on, hang_up=hang_up)

    async def elevenlabs(self, key: KeyHolder, text: str) -> str:
        path = "/v1/text-to-speech/default/stream?output_format=pcm_24000"
        return await self._post("elevenlabs", path, key, {"json": {"text": text}}, "Synthesize")

    async def cosyvoice(self, key: KeyHolder, text: str) -> str:
        """A whole WAV file."""
        form = {"tts_text": text, "format": "wav"}
        return await self._post("cosyvoice", "/inference_sft", key, {"data": form}, "Synthesize")

    async def no_path(self, key: KeyHolder) -> str:
        """A path that there is not."""
        return await self._post("other", "/v1/singing", key, {"json": {}}, "")

    async def _post(
        self, api: str, path: str, key: KeyHolder | None, body: Any, passed_on: str, *, hang_up: bool = False
    ) -> str:
        """body: as an argument of the client."""
        begun, heard, status, said = time.monotonic(), False, "OK", ""
        headers = key.headers if key else {}
        try:
            async with self._http.stream("POST", path, headers=headers, **body) as answer:
                if answer.status_code != 200:
                    status, said = _STATUSES[answer.status_code], (await answer.aread()).decode()
                async for piece in answer.aiter_raw() if status == "OK" else _nothing():
                    if piece and not heard:
                        heard = True
                        self._seen.heard(api, begun, (GATEWAY, api), (ORCHESTRATOR, passed_on))
                    if heard and hang_up:
                        status = "CANCELLED"
                        break
        except asyncio.CancelledError:
            self._ended(api, "CANCELLED", "", passed_on)
            raise
        self._ended(api, status, said, passed_on)
        return status

    def _ended(self, api: str, status: str, said: str, passed_on: str) -> None:
        self._seen.ended(GATEWAY, api, status, said)
        if not passed_on:
            return
        if "whole files hold" in said:  # the gateway hangs up on the orchestrator
            self._seen.sounded[ORCHESTRATOR, passed_on] += 1
            self._seen.ended(ORCHESTRATOR, passed_on, "CANCELLED")
        else:
            self._seen.ended(ORCHESTRATOR, passed_on, status, said)

    async def utterances(self, key: KeyHolder, *texts: str) -> list[str]:
        """Each text as an utterance of one WebSocket; the statuses."""
        try:
            async with self.socket(key) as socket:
                return [await self._utterance(socket, text) for text in texts]
        except InvalidStatus as error:
            self._seen.ended(GATEWAY, "websocket", status := _STATUSES[error.response.status_code], _text(error))
            return [status]

    def socket(self, key: KeyHolder) -> connect:
        """A WebSocket, on which nothing is said yet."""
        return connect(f"ws://{self._address}/v1/audio/stream", additional_headers=key.headers)

    async def _utterance(self, socket: ClientConnection, text: str) -> str:
        for part in ({"type": "setup"}, {"type": "text", "text": text}, {"type": "end"}):
            await socket.send(json.dumps(part))
        begun, heard = time.monotonic(), False
        async for message in socket:
            if isinstance(message, bytes):
                if not heard:
                    heard = True
                    both = (GATEWAY, "websocket"), (ORCHESTRATOR, "StreamingSynthesize")
                    self._seen.heard("websocket", begun, *both)
            elif json.loads(message)["type"] == "summary":
                self._seen.ended(GATEWAY, "websocket", "OK")
                self._seen.ended(ORCHESTRATOR, "StreamingSynthesize", "OK")
                return "OK"
        raise AssertionError(f"the WebSocket ended with {socket.close_reason}")


async def _nothing() -> Any:
    for _ in ():
        yield b""


def _metadata(key: KeyHolder | None) -> tuple[tuple[str, str], ...]:
    return key.metadata if key else ()


def _text(error: InvalidStatus) -> str:
    return (error.response.body or b"").decode()


def _said(error: grpc.aio.AioRpcError) -> str:
    """The message; of a limit of a key it has to be the one that the details name."""
    said = error.details() or ""
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info) and info.reason == "KEY_LIMIT":
                    assert _LIMITS[next(words for words in _LIMITS if words in said)] == info.metadata["limit"]
    return said
