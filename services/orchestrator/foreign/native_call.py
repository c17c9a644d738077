"""A call of another contract, answered by a method of our own service: the method gets a translated
request and a context whose `write` translates the responses back. So it is admitted, spoken,
resumed, cancelled and measured as any call of ours.

Voices are found for the names by which clients of other servers ask.
"""

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, cast

import grpc

from cosyserve.v1 import synthesis_pb2 as pb
from cosyserve.v1 import voice_pb2
from services.orchestrator.access.caller import current_call

Context = grpc.aio.ServicerContext[Any, Any]
_MOST_NOTES = 2_000
"""Characters of the warnings: metadata travel in one block of headers."""
FEMALE, MALE = "female", "male"
_PAGE = 1_000
FRESH_SECONDS = 5.0
_MOST_SCOPES = 256
Voices = Sequence[voice_pb2.VoiceSummary]
_BEGINNINGS = (b"RIFF", b"fLaC", b"OggS", b"ID3")


class NativeService(Protocol):
    """Methods of `SynthesisService`, which write their responses to the context."""

    async def Synthesize(self, request: pb.SynthesizeRequest, context: Context, /) -> None: ...  # noqa: N802

    async def StreamingSynthesize(  # noqa: N802
        self, requests: AsyncIterator[pb.StreamingSynthesizeRequest], context: Context, /
    ) -> None: ...

    async def ListVoices(  # noqa: N802
        self, request: pb.ListVoicesRequest, context: Context, /
    ) -> pb.ListVoicesResponse: ...


class _Translating:
    """A context as it is, but for `write`."""

    def __init__(self, context: Context, write: Callable[[pb.SynthesizeResponse], Awaitable[None]]) -> None:
        self._context = context
        self.write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def translating(
    context: Context, write: Callable[[pb.SynthesizeResponse], Awaitable[None]], notes: Iterable[str] = ()
) -> Context:
    """The context for a method of our own service.

    write: sends the translation of a response. notes: warnings of the adapter, read when the last
    response is written. The trailing metadata of the call get `x-seed`, `x-voice`,
    `x-sample-rate` and `x-synthetic-audio`, and `x-warnings` if there are any.
    """
    known: dict[str, str] = {"x-synthetic-audio": "true"}

    async def translated(response: pb.SynthesizeResponse) -> None:
        if response.HasField("header"):
            header = response.header
            known["x-seed"] = str(header.seed)
            known["x-sample-rate"] = str(header.audio_format.sample_rate_hertz)
            known["x-voice"] = _printable(header.voice)
        if response.HasField("summary"):
            if warnings := [*notes, *(warning.message for warning in response.summary.warnings)]:
                known["x-warnings"] = _printable("; ".join(warnings))[:_MOST_NOTES]
            context.set_trailing_metadata(tuple(known.items()))
        await write(response)

    return cast("Context", _Translating(context, translated))


def _printable(text: str) -> str:
    """As metadata can carry it: printable ASCII."""
    return "".join(character if " " <= character <= "~" else "?" for character in text)


class KnownVoices:
    """The voices among which a name is looked up. What was listed for one caller is used for all
    that see the same voices, for 5 seconds, so that a request costs no list of its own.
    """

    def __init__(self, service: NativeService) -> None:
        self._service = service
        self._listed: OrderedDict[str | None, tuple[Voices, float]] = OrderedDict()

    async def seen(self, context: Context) -> Voices:
        """All voices that the caller of this call may use, ordered by id. Raises what listing them
        raises.
        """
        scope = current_call().caller.scope
        voices, until = self._listed.get(scope, ((), 0.0))
        if time.monotonic() < until:
            return voices
        begun = time.monotonic()
        voices = await all_voices(self._service, context)
        self._listed[scope] = voices, begun + FRESH_SECONDS
        self._listed.move_to_end(scope)
        if len(self._listed) > _MOST_SCOPES:
            self._listed.popitem(last=False)
        return voices


async def all_voices(service: NativeService, context: Context) -> list[voice_pb2.VoiceSummary]:
    """All voices that the caller may use, ordered by id."""
    voices: list[voice_pb2.VoiceSummary] = []
    token = ""
    while True:
        page = await service.ListVoices(pb.ListVoicesRequest(page_size=_PAGE, page_token=token), context)
        voices += page.voices
        token = page.next_page_token
        if not token:
            return voices


def first_of(voices: Voices, sex: str) -> str:
    """The id of the first voice whose label `sex` or `gender` says so; empty, the default voice, if
    there is none.
    """
    return next((voice.id for voice in voices if _sex(voice) == sex), "")


def speaking(voices: Voices, language: str) -> list[voice_pb2.VoiceSummary]:
    """The voices of this language (BCP-47 tag), the default one first; none for an empty tag."""
    wanted = primary(language)
    found = [voice for voice in voices if wanted and primary(voice.language_code) == wanted]
    return sorted(found, key=lambda voice: not voice.is_default)


def _sex(voice: voice_pb2.VoiceSummary) -> str:
    return voice.labels.get("sex", "") or voice.labels.get("gender", "")


def primary(language: str) -> str:
    """The primary subtag: en of en-US and of en_US."""
    return language.replace("_", "-").partition("-")[0].lower()


def is_sound_file(audio: bytes) -> bool:
    """By its first bytes: WAV, FLAC, Ogg, or MP3 with a tag."""
    return audio.startswith(_BEGINNINGS)
