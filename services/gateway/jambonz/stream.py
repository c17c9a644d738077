"""WS /jambonz/stream: tokens of text in, binary audio out, for one call after the other's turn.

What comes up to a `flush` is an utterance, which is spoken while its text arrives. An utterance
that fails is an `error` message and the connection goes on: the call may have more to say.
"""

import asyncio
import collections
import contextlib
import json
import logging
from collections.abc import Awaitable
from typing import Any, Literal

from fastapi import APIRouter, WebSocket
from pydantic import BaseModel, ConfigDict
from starlette.datastructures import QueryParams
from starlette.websockets import WebSocketDisconnect

from cosyserve import telemetry
from cosyserve.audio.encoding import Encoding
from cosyserve.client.options import SynthesisOptions
from cosyserve.errors import CallerStalled, CosyserveError, InvalidRequest, Unauthenticated
from cosyserve.tasks import Changes, cancel_all
from services.gateway.jambonz.synthesis import RATES, language_tag
from services.gateway.speech.arriving_text import MOST_CHARACTERS, ArrivingText
from services.gateway.speech.drain import drain_of
from services.gateway.speech.failures import failure_of
from services.gateway.speech.request_model import validated
from services.gateway.speech.request_record import utterance_of
from services.gateway.speech.speaking import Speaker, speaker_of
from services.gateway.websocket.conversation import INTERNAL, LOST, NORMAL, POLICY, RESTARTS, read_object

log = logging.getLogger(__name__)
router = APIRouter()
IDLE_SECONDS = 3_600.0
"""Without a message: a call may listen for long."""
_MOST_WAITING = 64
_LONGEST_PAUSE_MILLISECONDS = 180_000


class Message(BaseModel):
    """stream: more text. flush: the text is complete, speak it to its end. clear: stop at once and
    drop what waits. stop: close when everything is spoken. keepalive: a sign of life. Other types
    are ignored.
    """

    model_config = ConfigDict(extra="ignore")

    type: str
    text: str = ""


def read_message(text: str | None) -> Message:
    """text: None for a binary frame. Raises InvalidRequest."""
    return validated(Message, read_object(text))


class Form(BaseModel):
    """The parameters of the address, of which jambonz sends the first three."""

    model_config = ConfigDict(extra="ignore")

    voice: str = ""
    language: str = ""
    sampleRate: int = RATES[0]  # noqa: N815  # its name in jambonz
    encoding: Literal[Encoding.LINEAR16, Encoding.MULAW] = Encoding.LINEAR16
    """Ours: jambonz expects linear16."""
    seed: int | None = None
    """Ours."""

    def options(self) -> SynthesisOptions:
        """Without the voice."""
        return SynthesisOptions(
            language_code=language_tag(self.language),
            sample_rate=self.sampleRate,
            encoding=self.encoding,
            seed=self.seed,
        )


def read_form(query: QueryParams) -> Form:
    """Raises InvalidRequest naming the parameter."""
    form = validated(Form, query)
    if form.sampleRate not in RATES:
        raise InvalidRequest(f"sampleRate is {form.sampleRate}, allowed are {', '.join(map(str, RATES))}")
    if form.seed is not None and not 0 <= form.seed < 1 << 64:
        raise InvalidRequest("seed is outside of 0 to 2^64 - 1")
    return form


def connect_message(form: Form) -> dict[str, Any]:
    """The first message: audio is binary, at this rate."""
    return {"type": "connect", "data": {"sample_rate": form.sampleRate, "base64_encoding": False}}


def error_message(text: str) -> dict[str, Any]:
    """A part of the text was not spoken, or the connection is about to be closed."""
    return {"type": "error", "error": text}


@router.websocket("/jambonz/stream")
async def stream(socket: WebSocket) -> None:
    """Utterances until `stop`, or until the caller hangs up."""
    await socket.accept()
    call = Call(socket, socket.app.state.speaker)
    code = NORMAL
    try:
        call.speaker = speaker_of(socket)
        await call.run(read_form(socket.query_params))
    except WebSocketDisconnect:
        return
    except asyncio.CancelledError:
        with contextlib.suppress(CallerStalled, WebSocketDisconnect, RuntimeError):
            await call.close(RESTARTS)
        raise
    except Exception as error:
        telemetry.failed(error)
        if not isinstance(error, CosyserveError):
            log.exception("a call of jambonz failed")
        code = POLICY if isinstance(error, InvalidRequest | CallerStalled | Unauthenticated) else INTERNAL
        with contextlib.suppress(CallerStalled, WebSocketDisconnect, RuntimeError):
            await call.send(error_message(failure_of(error).message))
    with contextlib.suppress(CallerStalled, WebSocketDisconnect, RuntimeError):
        await call.close(code)


class Call:
    """One connection. Messages are read at any time, so that `clear` interrupts at once."""

    def __init__(self, socket: WebSocket, speaker: Speaker) -> None:
        self._socket, self.speaker = socket, speaker
        self._waiting: collections.deque[ArrivingText] = collections.deque()
        """Utterances that are not spoken yet, and the one that is."""
        self._open: ArrivingText | None = None
        """The last of them, while its text is arriving."""
        self._current: asyncio.Task[None] | None = None
        self._stopped = self._skipping = False
        """skipping: the rest of a text whose beginning could not be spoken."""
        self._changes = Changes()

    async def run(self, form: Form) -> None:
        """Serve until everything before a `stop` is spoken. Raises WebSocketDisconnect when the
        caller hangs up, InvalidRequest for what is no message or too much text, CallerStalled.
        """
        await self.send(connect_message(form))
        tasks = asyncio.create_task(self._read_messages()), asyncio.create_task(self._speak_all(form))
        draining = asyncio.create_task(self._end_with_the_gateway())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_all((*tasks, draining))
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _end_with_the_gateway(self) -> None:
        await drain_of(self._socket).until_begun()
        self.end()

    def end(self) -> None:
        """Take no more text; `run` returns when what was asked for is spoken."""
        self._end_text()
        self._stopped = True
        self._changes.notify()

    async def send(self, message: dict[str, Any]) -> None:
        """Raises CallerStalled when the caller does not take it in time."""
        await self._in_time(self._socket.send_text(json.dumps(message, ensure_ascii=False)))

    async def close(self, code: int) -> None:
        """Close the connection; errors as `send`."""
        await self._in_time(self._socket.close(code))

    async def _read_messages(self) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    received = await self._socket.receive()
            except TimeoutError as error:
                raise CallerStalled(f"no message came within {IDLE_SECONDS:g} s") from error
            if received["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(received.get("code", LOST), received.get("reason"))
            self._on_message(read_message(received.get("text")))

    def _on_message(self, message: Message) -> None:
        if message.type == "stream" and not self._stopped and not self._skipping:
            self._add(message.text)
        elif message.type == "flush":
            self._end_text()
        elif message.type == "clear":
            self._clear()
        elif message.type == "stop":
            self.end()
        elif message.type == "keepalive" and self._open is not None:
            self._open.add("")

    def _add(self, text: str) -> None:
        if not text:
            return
        if sum(each.characters for each in self._waiting) + len(text) > MOST_CHARACTERS:
            raise InvalidRequest(f"more than the {MOST_CHARACTERS} characters allowed wait to be spoken")
        if self._open is None:
            if len(self._waiting) >= _MOST_WAITING:
                raise InvalidRequest(f"more than the {_MOST_WAITING} texts allowed wait to be spoken")
            self._open = ArrivingText()
            self._waiting.append(self._open)
            self._changes.notify()
        self._open.add(text)

    def _end_text(self) -> None:
        self._skipping = False
        if self._open is not None:
            self._open.end()
            self._open = None

    def _clear(self) -> None:
        self._waiting.clear()
        self._open, self._skipping = None, False
        if self._current is not None:
            self._current.cancel()

    async def _speak_all(self, form: Form) -> None:
        while True:
            await self._changes.wait_for(lambda: self._waiting or self._stopped)
            if not self._waiting:
                return
            text = self._waiting[0]
            self._current = asyncio.create_task(self._speak(text, form))
            try:
                await asyncio.wait((self._current,))
                if not self._current.cancelled():
                    await self._report_failure(self._current)
            finally:
                await cancel_all((self._current,))
                self._current = None
            if self._waiting and self._waiting[0] is text:
                self._waiting.popleft()
                if self._open is text:
                    self._open, self._skipping = None, True

    async def _report_failure(self, spoken: "asyncio.Task[None]") -> None:
        """Raises CallerStalled, WebSocketDisconnect, and what is no failure of the speech."""
        try:
            spoken.result()
        except (CallerStalled, Unauthenticated):
            raise
        except CosyserveError as error:
            telemetry.failed(error)
            await self.send(error_message(failure_of(error).message))

    async def _speak(self, text: ArrivingText, form: Form) -> None:
        if not await text.worded():
            return
        options = form.options()
        options["voice"] = await self.speaker.voices.voice_of(form.voice)
        speech = self.speaker.client.streaming_synthesize(
            text.fragments(), idle_timeout_milliseconds=_LONGEST_PAUSE_MILLISECONDS, **options
        )
        with utterance_of("jambonz") as counted:
            async with speech:
                async for chunk in speech:
                    counted.sends()
                    await self._in_time(self._socket.send_bytes(chunk.audio))

    async def _in_time(self, sending: Awaitable[None]) -> None:
        seconds = self.speaker.reader_seconds
        try:
            async with asyncio.timeout(seconds):
                await sending
        except TimeoutError as error:
            raise CallerStalled(f"the caller has read nothing for {seconds:g} s") from error
