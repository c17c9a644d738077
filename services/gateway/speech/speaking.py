"""What every API does to have something spoken: finds the voice, calls the speech service, and says
in headers what the audio is.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace

from starlette.requests import HTTPConnection

from cosyserve import telemetry
from cosyserve.client import AsyncClient, Speech
from cosyserve.client.options import ConversionOptions, SynthesisOptions
from cosyserve.client.types import Chunk
from cosyserve.errors import CosyserveError, FailedPrecondition, PermissionDenied, Quarantined, Unauthenticated
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.spec import EULER_STEPS
from services.gateway.speech.caller_key import key_of
from services.gateway.speech.figures import SpeechFigures
from services.gateway.speech.request_record import current_record
from services.gateway.speech.voice_names import VoiceNames

_ACCESS_SECONDS = 2.0
_IGNORED_INSTRUCTIONS = "the instructions were ignored: this model follows none"


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
