"""One context: text that arrives, spoken as one utterance with the times of its characters."""

import asyncio
import collections
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from cosyserve.client import StreamingSpeech
from cosyserve.client.options import SynthesisOptions
from cosyserve.errors import InvalidRequest
from cosyserve.tasks import Changes, retrieve_error
from services.gateway.elevenlabs.alignment.characters import Alignment, SpokenText
from services.gateway.elevenlabs.output_format import OutputFormat, VoiceSettings, options_of
from services.gateway.elevenlabs.sockets.messages import Received, SocketQuery, audio_message
from services.gateway.elevenlabs.voices import voice_of
from services.gateway.speech.encoded_speech import encoded
from services.gateway.speech.request_record import CountedUtterance, utterance_of
from services.gateway.speech.speaking import Speaker, Utterance, checked

MOST_CHARACTERS = 200_000
"""Longest text of a context, as long as the speech service takes."""
_LONGEST_PIECE = 20_000
"""Longest piece that the speech service takes at once."""
_SENTENCE_ENDS = (".", "!", "?", "…", ":", ";", "。", "！", "？", "；", "：")
_CLOSING = "\"'”’»)]}」』）"
_KEEP_ALIVE_SECONDS = 15.0
"""How often the speech service is notified that more text may come; it waits for 30 s."""
Send = Callable[[dict[str, object]], Awaitable[None]]


class Mark(Enum):
    """What stands between texts."""

    FLUSH = "flush"
    END = "end"


class PendingText:
    """Never holds more than MOST_CHARACTERS, nor two marks of a kind in a row."""

    def __init__(self) -> None:
        self._parts: collections.deque[str | Mark] = collections.deque()
        self._characters = 0
        self._changes = Changes()
        self.last: Mark | None = None
        """The last mark, if no text came behind it."""

    @property
    def ended(self) -> bool:
        """Whether no more text comes."""
        return self.last is Mark.END

    def add(self, text: str) -> None:
        """More text, not empty. Raises InvalidRequest if it is too much."""
        if self._characters + len(text) > MOST_CHARACTERS:
            raise InvalidRequest(f"the text of a context has more than the {MOST_CHARACTERS} characters allowed")
        self._characters += len(text)
        latest = self._parts[-1] if self._parts else None
        if isinstance(latest, str):
            self._parts[-1] = latest + text
        else:
            self._parts.append(text)
        self.last = None
        self._changes.notify()

    def mark(self, mark: Mark) -> None:
        """Have the text so far spoken now, or say that it has ended; once more changes nothing."""
        if self.last not in (mark, Mark.END):
            self._parts.append(mark)
            self.last = mark
            self._changes.notify()

    def drop(self) -> None:
        """Forget what is here, and end."""
        self._parts.clear()
        self._parts.append(Mark.END)
        self.last = Mark.END
        self._changes.notify()

    async def next(self) -> str | Mark:
        """The next piece of text or mark. Behind END there is none."""
        await self._changes.wait_for(lambda: self._parts)
        part = self._parts.popleft()
        if isinstance(part, str) and len(part) > _LONGEST_PIECE:
            self._parts.appendleft(part[_LONGEST_PIECE:])
            return part[:_LONGEST_PIECE]
        return part


@dataclass
class Form:
    """What all contexts of a connection share. voice_id: of the address. key: whether the caller
    has presented one; until then its first message may bring one.
    """

    speaker: Speaker
    voice_id: str
    query: SocketQuery
    output_format: OutputFormat
    key: bool = False

    def identify(self, key: str) -> None:
        """Use the key that came in a message, unless there is one already."""
        if key and not self.key:
            self.speaker, self.key = self.speaker.with_key(checked(key)), True

    async def voice(self) -> str:
        """As the speech service knows it."""
        return await self.speaker.voices.voice_of(await voice_of(self.speaker.voices, self.voice_id))


class Context:
    """Nothing is requested of the speech service before there is text to speak. send: writes a
    message of this context to the caller.
    """

    def __init__(self, form: Form, send: Send) -> None:
        self._form, self._send = form, send
        self._pending = PendingText()
        self._settings = VoiceSettings()
        self._speech: StreamingSpeech | None = None
        self._stopped = False
        self._spoken = SpokenText()
        self._since = 0
        """Milliseconds from the beginning of the utterance to the end of the last alignment."""
        self._blank = True
        """Whether the text so far is empty or ends in a blank."""
        self._touched = time.monotonic()
        self.flushed = False
        """Whether the caller has asked to have all of its text spoken."""

    @property
    def ended(self) -> bool:
        """Whether no more text comes."""
        return self._pending.ended

    def take(self, message: Received) -> None:
        """Text, flush and settings of a message; one without any keeps the context alive. Settings
        are ignored once there is speech; blanks in front of all text and behind another blank are
        no text. Raises InvalidRequest for too much text.
        """
        self._touched = time.monotonic()
        if message.settings is not None and self._speech is None:
            self._settings = message.settings
        if message.text and not (self._blank and message.text.isspace()):
            self._add(message.text)
        if message.flush:
            self.flushed = True
            self._pending.mark(Mark.FLUSH)

    def end(self) -> None:
        """Have the rest spoken; no more text comes."""
        self._pending.mark(Mark.END)

    async def stop(self) -> None:
        """Cancel the speech in every stage, now: `run` raises CancelledError, or returns if there
        is no speech yet.
        """
        self._stopped = True
        if self._speech is not None:
            await self._speech.close()
        else:
            self._pending.drop()

    async def run(self) -> None:
        """Speak until the text has ended and was spoken. A context whose caller has sent nothing
        for the time allowed ends as if the caller had ended it. Errors: those of the client, and of
        `send`.
        """
        part = await self._next()
        while part is Mark.FLUSH:
            part = await self._next()
        if part is Mark.END:
            return
        speech = await self._begin()
        if self._stopped:  # while the voice was looked up
            return
        self._speech = speech
        with utterance_of("elevenlabs") as counted:
            await self._speak(speech, part, counted)

    async def _speak(self, speech: StreamingSpeech, part: str | Mark, counted: CountedUtterance) -> None:
        async with speech:
            writing = asyncio.create_task(self._write(speech, part))
            reading = asyncio.create_task(self._read(speech, counted))
            try:
                await asyncio.wait((writing, reading), return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    writing.result()
                await reading
            finally:
                for task in (writing, reading):
                    task.add_done_callback(retrieve_error)
                    task.cancel()
                await asyncio.wait((writing, reading))

    async def _begin(self) -> StreamingSpeech:
        query = self._form.query
        options: SynthesisOptions = options_of(
            self._settings, self._form.output_format, query.language_code, query.seed
        )
        options["voice"] = await self._form.voice()
        return self._form.speaker.client.streaming_synthesize(mode=query.mode, **options)

    def _add(self, text: str) -> None:
        self._pending.add(text)
        self._blank, self.flushed = text[-1].isspace(), False
        if self._form.query.auto_mode and text.rstrip().rstrip(_CLOSING).endswith(_SENTENCE_ENDS):
            self._pending.mark(Mark.FLUSH)

    async def _next(self) -> str | Mark:
        """The next part of the text; its end if the caller was silent too long."""
        while True:
            left = self._touched + self._form.query.idle_seconds - time.monotonic()
            if left <= 0:
                self._pending.mark(Mark.END)
                return await self._pending.next()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, _KEEP_ALIVE_SECONDS)):
                    return await self._pending.next()
            if self._speech is not None:
                await self._speech.write("")

    async def _write(self, speech: StreamingSpeech, part: str | Mark) -> None:
        while part is not Mark.END:
            if isinstance(part, str):
                self._spoken.add(part)
                await speech.write(part)
            else:
                self._spoken.end_phrase()
                await speech.flush()
            part = await self._next()
        self._spoken.end_phrase()
        await speech.finish()

    async def _read(self, speech: StreamingSpeech, counted: CountedUtterance) -> None:
        pieces = encoded(Utterance(speech), self._form.output_format.encoder())
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                counted.sends()
                await self._send_audio(piece, self._spoken.news(speech.words))
        for alignment in (self._spoken.news(speech.words), self._spoken.rest()):
            if alignment is not None:
                await self._send_audio(b"", alignment)

    async def _send_audio(self, piece: bytes, alignment: Alignment | None) -> None:
        await self._send(audio_message(piece, alignment, 0 if self._form.query.sync_alignment else self._since))
        if alignment is not None:
            self._since = round(1000 * alignment.end)
