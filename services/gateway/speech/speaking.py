"""What every API does to have something spoken: finds the key of the caller, which goes on to the
speech service unread, and the voice, calls the speech service, says in headers what the audio is,
and counts what was spoken.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field, replace

from starlette.requests import HTTPConnection

from cosyserve import telemetry
from cosyserve.client import AsyncClient, Speech
from cosyserve.client.options import ConversionOptions, SynthesisOptions
from cosyserve.client.types import Chunk
from cosyserve.errors import CosyserveError, FailedPrecondition, PermissionDenied, Quarantined, Unauthenticated
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.keys.secret import AUTHORIZATION, bearer_of, is_presentable
from cosyserve.spec import EULER_STEPS
from services.gateway.speech.request_record import current_record
from services.gateway.speech.voice_names import VoiceNames

_ACCESS_SECONDS = 2.0
_IGNORED_INSTRUCTIONS = "the instructions were ignored: this model follows none"
KEPT = 1_000
"""Latest requests whose times are kept."""
_HEADERS = ("xi-api-key", "x-api-key")
QUERY = "api_key"
"""Of a WebSocket's address: browsers can give a WebSocket no headers."""


class SpeechFigures:
    """One for the whole gateway."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._requests = self._in_progress = self._complete = self._failed = self._cancelled = 0
        self._audio_seconds = 0.0
        self._first_audio: deque[float] = deque(maxlen=KEPT)
        self._factors: deque[float] = deque(maxlen=KEPT)

    @contextlib.contextmanager
    def observed(self) -> Iterator[list[Speech]]:
        """A request while the block runs; the last item of the list is the call that served it."""
        calls: list[Speech] = []
        self._requests += 1
        self._in_progress += 1
        failed = False
        try:
            yield calls
        except (GeneratorExit, asyncio.CancelledError):
            raise
        except BaseException:
            failed = True
            raise
        finally:
            self._in_progress -= 1
            self._count(calls[-1] if calls else None, failed=failed)

    def _count(self, speech: Speech | None, *, failed: bool) -> None:
        if speech is not None and speech.first_byte_seconds is not None:
            self._first_audio.append(speech.first_byte_seconds)
        if failed:
            self._failed += 1
        elif speech is None or speech.summary is None:
            self._cancelled += 1
        else:
            self._complete += 1
            self._audio_seconds += speech.summary.audio_seconds
            self._factors.append(speech.summary.real_time_factor)

    def report(self) -> dict[str, object]:
        """Counts, seconds, and quantiles over the latest `KEPT` requests."""
        return {
            "uptime_seconds": round(time.monotonic() - self._begun, 3),
            "requests": {
                "total": self._requests,
                "in_progress": self._in_progress,
                "complete": self._complete,
                "failed": self._failed,
                "cancelled": self._cancelled,
            },
            "audio_seconds": round(self._audio_seconds, 3),
            "first_audio_seconds": _quantiles(self._first_audio),
            "real_time_factor": _quantiles(self._factors),
        }


class Utterance:
    """One request to speak. speech: the call to the speech service; nothing is sent before the
    first chunk is asked for. plain: the same without instructions, in case the model follows none:
    clients of other servers send them to every model. figures: where it is counted; None: nowhere.
    """

    def __init__(self, speech: Speech, plain: Speech | None = None, *, figures: SpeechFigures | None = None) -> None:
        self.speech = speech
        self._figures = figures or SpeechFigures()
        self.notes: list[str] = []
        """What was ignored, for people."""
        self._plain = plain

    async def chunks(self) -> AsyncGenerator[Chunk]:
        """The audio in order. Errors: those of `cosyserve.client`."""
        plain, self._plain = self._plain, None
        telemetry.record_beginning("gateway.request")
        with self._figures.observed() as calls:
            calls.append(self.speech)
            try:
                async for chunk in self.speech:
                    current_record().speaks = True
                    yield chunk
                return
            except Quarantined:
                raise
            except FailedPrecondition:
                if plain is None or self.speech.header is not None:
                    raise
            self.speech = plain
            calls.append(plain)
            self.notes.append(_IGNORED_INSTRUCTIONS)
            async for chunk in self.speech:
                current_record().speaks = True
                yield chunk

    async def aclose(self) -> None:
        """Cancel the call in every stage."""
        self._plain = None
        await self.speech.close()

    def headers(self) -> Mapping[str, str]:
        """What is known at the first audio: that no human speaks, and what a repetition needs."""
        headers = {"x-synthetic-audio": "true", "cache-control": "no-store"}
        if self.speech.header is not None:
            headers |= {
                "x-sample-rate": str(self.speech.header.sample_rate),
                "x-seed": str(self.speech.header.seed),
                "x-voice": self.speech.header.voice,
            }
            if self.speech.header.euler_steps < EULER_STEPS:
                headers["x-euler-steps"] = str(self.speech.header.euler_steps)
        notes = [*self.notes, *(warning.message for warning in self.speech.warnings)]
        # A header is Latin-1 without line ends; the messages hold no part of the text.
        return headers | ({"x-warnings": "; ".join(notes)} if notes else {})


@dataclass(frozen=True)
class Speaker:
    """One for each caller, on the connection of the whole gateway. reader_seconds: as in
    `AudioResponse`. idle_seconds: after which a WebSocket on which nothing is spoken is closed.
    """

    client: AsyncClient
    voices: VoiceNames
    reader_seconds: float
    idle_seconds: float = 180.0
    figures: SpeechFigures = field(default_factory=SpeechFigures)

    def with_key(self, key: str) -> "Speaker":
        """For a caller with this key; empty: without one."""
        if not key:
            return self
        client = self.client.with_key(key)
        return replace(self, client=client, voices=self.voices.seen_by(key, client.voices))

    async def require_access(self) -> None:
        """Raises Unauthenticated or PermissionDenied for a caller that the speech service does not
        serve. Without an answer of it, speech will say what is wrong.
        """
        await self.model()

    async def model(self) -> str:
        """The generation of the model that speaks; that of CosyVoice2 without an answer of the
        speech service, and of one of an earlier release. Raises as `require_access`.
        """
        try:
            return await self.client.model(_ACCESS_SECONDS) or COSYVOICE2.name
        except (Unauthenticated, PermissionDenied):
            raise
        except CosyserveError:
            return COSYVOICE2.name

    async def speak(
        self, text: str, voice: str, options: SynthesisOptions, *, needs_instructions: bool = False
    ) -> Utterance:
        """voice: any name that `VoiceNames` knows. needs_instructions: a model that follows none is
        an error. Raises InvalidRequest for values that no message can carry.
        """
        options["voice"] = await self.voices.voice_of(voice)
        instructed = self.client.synthesize(text, **options)
        if needs_instructions or not options.get("instruction"):
            return Utterance(instructed, figures=self.figures)
        options["instruction"] = ""
        return Utterance(instructed, self.client.synthesize(text, **options), figures=self.figures)

    async def convert(self, audio: bytes, voice: str, options: ConversionOptions) -> Utterance:
        """The bytes of a sound file, said by another voice; otherwise as `speak`."""
        options["voice"] = await self.voices.voice_of(voice)
        return Utterance(self.client.convert_voice(audio, **options), figures=self.figures)


def speaker_of(connection: HTTPConnection) -> Speaker:
    """The speaker of the application that serves this connection, with the key of its caller.
    Raises Unauthenticated for one that no header can carry.
    """
    speaker: Speaker = connection.app.state.speaker
    return speaker.with_key(key_of(connection))


def _quantiles(values: deque[float]) -> Mapping[str, float | int | None]:
    ordered = sorted(values)

    def at(share: float) -> float | None:
        return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 4) if ordered else None

    return {"count": len(ordered), "p50": at(0.5), "p95": at(0.95), "max": at(1.0)}


def key_of(connection: HTTPConnection) -> str:
    """The key in `authorization: Bearer`, else in `xi-api-key` or `x-api-key`, else in the address
    of a WebSocket; empty if there is none. Raises Unauthenticated for one that no header can carry.
    """
    candidates = [bearer_of(connection.headers.get(AUTHORIZATION, ""))]
    candidates += [connection.headers.get(name, "") for name in _HEADERS]
    if connection.scope["type"] == "websocket":
        candidates.append(connection.query_params.get(QUERY, ""))
    return checked(next((key.strip() for key in candidates if key.strip()), ""))


def checked(key: str) -> str:
    """`key`, which may be empty. Raises Unauthenticated for one that no header can carry."""
    if key and not is_presentable(key):
        raise Unauthenticated("the API key is not of visible ASCII characters")
    return key
