"""One connection: utterances one after the other, while further events are read.

`synthesize` is answered by audio-start, audio-chunk, audio-stop; text that arrives between
`synthesize-start` and `synthesize-stop` is spoken while it arrives, and `synthesize-stopped` comes
behind its audio. A failure is an `error`, behind which the connection is closed: a client that
waits for audio would never return.
"""

import asyncio
import collections
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from opentelemetry.context import Context

from cosyserve import telemetry
from cosyserve.client import Speech
from cosyserve.errors import CallerStalled, CosyserveError, InvalidRequest
from cosyserve.tasks import Changes, cancel_all
from services.gateway.speech.arriving_text import ArrivingText
from services.gateway.speech.failures import failure_of
from services.gateway.speech.request_record import CountedUtterance, utterance_of
from services.gateway.speech.speaking import Speaker
from services.gateway.wyoming.events import Event, audio_chunk, audio_start, info, options_of, read_event, text_of

log = logging.getLogger(__name__)
IDLE_SECONDS = 180.0
"""Longest time in which nothing is spoken on a connection and no event comes."""
_MOST_WAITING = 4
"""Utterances that wait for their turn; with more the caller is not read."""
_LONGEST_PAUSE_MILLISECONDS = 180_000
"""Between two pieces of a text: who writes it may be thinking."""
_CLOSING_SECONDS = 2.0


@dataclass(frozen=True)
class Patience:
    """Seconds: idle, after which a connection on which nothing is spoken is closed; event, in which
    an event that has begun must arrive; reader, after which a caller that takes no audio is
    disconnected.
    """

    idle: float
    event: float
    reader: float


@dataclass(frozen=True)
class _Utterance:
    """begin: the call to the speech service, made when it is its turn; None: there is nothing to
    say. streamed: whether `synthesize-stopped` ends it.
    """

    begin: Callable[[], Awaitable[Speech | None]]
    streamed: bool


class Connection:
    """`run` serves it to its end."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, speaker: Speaker, patience: Patience
    ) -> None:
        self._reader, self._writer, self._speaker, self._patience = reader, writer, speaker, patience
        self._waiting: collections.deque[_Utterance] = collections.deque()
        self._changes = Changes()
        self._text: ArrivingText | None = None
        """Of the utterance whose text is arriving."""
        self._speaking = self._draining = False
        self._idle: asyncio.Timeout | None = None
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Serve until the caller hangs up, something fails, or the drain has begun and what was
        asked for is spoken; then close. A caller that hangs up cancels its speech in every stage.
        """
        tasks = asyncio.create_task(self._read_events()), asyncio.create_task(self._speak_all())
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await cancel_all(tasks)
            for task in done:
                task.result()
        except CallerStalled as error:
            log.info("wyoming: %s", error.message)
        except (ConnectionError, TimeoutError):
            pass
        except Exception as error:
            if not isinstance(error, CosyserveError):
                log.exception("a connection of Wyoming failed")
            await self._refuse(error)
        finally:
            await cancel_all(tasks)
            await self._close()

    def drain(self) -> None:
        """Take no further utterance; those that wait are spoken, as is text that has arrived."""
        self._draining = True
        if self._text is not None:
            self._text.end()
        self._changes.notify()

    async def _read_events(self) -> None:
        try:
            async with asyncio.timeout(None) as self._idle:
                self._note_activity()
                while (event := await read_event(self._reader, self._patience.event)) is not None:
                    self._note_activity()
                    await self._on_event(event)
                    await self._changes.wait_for(lambda: len(self._waiting) < _MOST_WAITING)
        finally:
            self._idle = None

    def _note_activity(self) -> None:
        """The time of idleness begins now, or, while something is spoken, does not run."""
        if self._idle is not None and not self._idle.expired():
            until = None if self._speaking else asyncio.get_running_loop().time() + self._patience.idle
            self._idle.reschedule(until)

    async def _on_event(self, event: Event) -> None:
        """Events of other domains and unknown ones are ignored, as in every server of Wyoming."""
        if event.type == "describe":
            await self._send(info(await self._speaker.voices.known()))
        elif event.type == "ping":
            await self._send(Event("pong", {"text": event.data.get("text")}))
        elif self._draining:
            return
        elif event.type == "synthesize" and self._text is None:
            # Within a streamed text it repeats the whole of it, for servers that do not stream.
            await self._ask_for_whole(event)
        elif event.type == "synthesize-start":
            await self._ask_for_streamed(event)
        elif event.type == "synthesize-chunk":
            self._arriving(event).add(text_of(event))
        elif event.type == "synthesize-stop":
            self._arriving(event).end()
            self._text = None

    async def _ask_for_whole(self, event: Event) -> None:
        text, options = text_of(event), await options_of(event, self._speaker.voices)

        async def begin() -> Speech:
            return self._speaker.client.synthesize(text, **options)

        self._ask(_Utterance(begin, streamed=False))

    async def _ask_for_streamed(self, event: Event) -> None:
        if self._text is not None:
            raise InvalidRequest("synthesize-start came before the synthesize-stop of the text before")
        self._text, options = ArrivingText(), await options_of(event, self._speaker.voices)
        text = self._text

        async def begin() -> Speech | None:
            if not await text.worded():
                return None
            return self._speaker.client.streaming_synthesize(
                text.fragments(), idle_timeout_milliseconds=_LONGEST_PAUSE_MILLISECONDS, **options
            )

        self._ask(_Utterance(begin, streamed=True))

    def _ask(self, utterance: _Utterance) -> None:
        self._waiting.append(utterance)
        self._changes.notify()

    def _arriving(self, event: Event) -> ArrivingText:
        if self._text is None:
            raise InvalidRequest(f"{event.type} came without a synthesize-start")
        return self._text

    async def _speak_all(self) -> None:
        while True:
            await self._changes.wait_for(lambda: self._waiting or self._draining)
            if not self._waiting:
                return
            utterance = self._waiting[0]
            with telemetry.call_span("gateway WYOMING", Context()):
                await self._speak(utterance)
            self._waiting.popleft()
            self._changes.notify()

    async def _speak(self, utterance: _Utterance) -> None:
        speech = await utterance.begin()
        if speech is not None:
            self._speaking = True
            self._note_activity()
            try:
                with utterance_of("wyoming") as counted:
                    async with speech:
                        await self._send_audio(speech, counted)
            except Exception as error:
                telemetry.failed(error)
                raise
            finally:
                self._speaking = False
                self._note_activity()
        if utterance.streamed:
            await self._send(Event("synthesize-stopped"))

    async def _send_audio(self, speech: Speech, counted: CountedUtterance) -> None:
        begun, sent = time.monotonic(), 0
        first: float | None = None
        async for chunk in speech:
            if first is None:
                first = time.monotonic() - begun
                await self._send(audio_start())
            counted.sends()
            await self._send(audio_chunk(chunk))
            sent += len(chunk.audio)
        if first is None:
            await self._send(audio_start())
        await self._send(Event("audio-stop"))
        log.info(
            "wyoming: %d bytes, first after %s ms, %.0f ms in all",
            sent,
            "-" if first is None else f"{1000 * first:.0f}",
            1000 * (time.monotonic() - begun),
        )

    async def _send(self, event: Event) -> None:
        """Raises CallerStalled when the caller does not take it in time."""
        async with self._writing:
            self._writer.write(event.to_bytes())
            try:
                async with asyncio.timeout(self._patience.reader):
                    await self._writer.drain()
            except TimeoutError as error:
                raise CallerStalled(f"the caller has read nothing for {self._patience.reader:g} s") from error

    async def _refuse(self, error: Exception) -> None:
        failure = failure_of(error)
        with contextlib.suppress(ConnectionError, CallerStalled):
            await self._send(Event("error", {"text": failure.message, "code": failure.code}))

    async def _close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self._writer.wait_closed()
        except (TimeoutError, OSError):
            self._writer.transport.abort()
