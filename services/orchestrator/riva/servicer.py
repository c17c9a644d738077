"""RivaSpeechSynthesis on top of our own service.

A client of `SynthesizeOnline` sends one text in one request, a list of texts in as many, or the
sentences of a language model as they are written, all of them with the same options. Their texts
are whole words: a blank joins them. What ends a sentence is spoken at once, since the next request
may be seconds away.
"""

import re
from collections.abc import AsyncIterator, Iterable

from cosyserve.errors import InvalidRequest, NotFound
from cosyserve.foreign import riva_tts_pb2 as riva
from cosyserve.foreign import riva_tts_pb2_grpc
from cosyserve.v1 import synthesis_pb2 as pb
from services.orchestrator.foreign.native_call import Context, KnownVoices, NativeService, all_voices, translating
from services.orchestrator.riva.request import translated
from services.orchestrator.riva.voice_names import MODEL, configurations

_OPTIONS = (
    "language_code",
    "encoding",
    "sample_rate_hz",
    "voice_name",
    "zero_shot_data",
    "custom_dictionary",
    "custom_configuration",
    "enable_word_time_offsets",
)
_SENTENCE_END = re.compile(r"""([!?…。！？]|\s\S+\.)["'”’»)\]」』）]*\s*\Z""")
"""A full stop behind a single word may be that of an abbreviation: `Dr.`"""
_DOCUMENT = re.compile(r"\s*<(\?xml|speak)")
_MOST_BYTES = 4_000_000
"""Audio in one message as most clients accept it: their default limit is 4 MiB."""


class RivaServicer(riva_tts_pb2_grpc.RivaSpeechSynthesisServicer):
    """service: our own, in this process."""

    def __init__(self, service: NativeService) -> None:
        self._service, self._voices = service, KnownVoices(service)

    async def Synthesize(
        self, request: riva.SynthesizeSpeechRequest, context: Context
    ) -> riva.SynthesizeSpeechResponse:
        asked, reply = await translated(request, self._voices, context), WholeReply(request)
        native = asked.setup.request
        native.text = request.text
        await self._service.Synthesize(native, translating(context, reply.write, asked.warnings))
        return reply.response()

    async def SynthesizeOnline(  # type: ignore[override]
        self, requests: AsyncIterator[riva.SynthesizeSpeechRequest], context: Context
    ) -> None:
        first = await anext(aiter(requests), None)
        if first is None:
            raise InvalidRequest("no request came, expected one with a text")
        asked, reply = await translated(first, self._voices, context), StreamedReply(first, context)

        async def parts() -> AsyncIterator[pb.StreamingSynthesizeRequest]:
            yield pb.StreamingSynthesizeRequest(setup=asked.setup)
            async for part in text_parts(first, requests):
                yield part

        await self._service.StreamingSynthesize(parts(), translating(context, reply.write, asked.warnings))

    async def GetRivaSynthesisConfig(
        self, request: riva.RivaSynthesisConfigRequest, context: Context
    ) -> riva.RivaSynthesisConfigResponse:
        if request.model_name not in ("", MODEL):
            raise NotFound(f"no model {request.model_name!r}; known: {MODEL}")
        voices = await all_voices(self._service, context)
        return riva.RivaSynthesisConfigResponse(model_config=configurations(voices))


async def text_parts(
    first: riva.SynthesizeSpeechRequest, further: AsyncIterator[riva.SynthesizeSpeechRequest]
) -> AsyncIterator[pb.StreamingSynthesizeRequest]:
    """The text of `first` and of those that follow, each with a flush where it ends a sentence.
    Raises InvalidRequest for one with other options than the first one.
    """
    # In a document its elements say where a sentence ends; a flush inside a tag would be an error.
    document = _DOCUMENT.match(first.text) is not None
    before = ""
    async for text in _texts(first, further):
        yield pb.StreamingSynthesizeRequest(text=_separator(before, text) + text)
        if not document and _SENTENCE_END.search(text):
            yield pb.StreamingSynthesizeRequest(flush=pb.Flush())
        before = text or before


async def _texts(
    first: riva.SynthesizeSpeechRequest, further: AsyncIterator[riva.SynthesizeSpeechRequest]
) -> AsyncIterator[str]:
    yield first.text
    number = 1
    async for request in further:
        number += 1
        _require_same_options(request, first, number)
        yield request.text


def _separator(before: str, text: str) -> str:
    words_touch = before and text and not (before[-1].isspace() or text[0].isspace())
    return " " if words_touch else ""


def _require_same_options(
    request: riva.SynthesizeSpeechRequest, first: riva.SynthesizeSpeechRequest, number: int
) -> None:
    """Options that are not set again are those of the first request."""
    unset = riva.SynthesizeSpeechRequest()
    for option in _OPTIONS:
        value = getattr(request, option)
        if value not in (getattr(unset, option), getattr(first, option)):
            raise InvalidRequest(
                f"{option} of request {number} differs from that of the first one; one stream speaks with one voice, "
                "in one format and with one configuration: open another one"
            )


class WholeReply:
    """Collects the response of `Synthesize`."""

    def __init__(self, request: riva.SynthesizeSpeechRequest) -> None:
        self._request = request
        self._parts: list[bytes] = []
        self._bytes = 0
        self._words: list[riva.WordTiming] = []

    async def write(self, response: pb.SynthesizeResponse) -> None:
        """Raises InvalidRequest for more audio than one message holds."""
        self._parts.append(response.audio)
        self._bytes += len(response.audio)
        if self._bytes > _MOST_BYTES:
            raise InvalidRequest(
                f"the audio of this text has over {_MOST_BYTES} bytes, more than one message can hold; use "
                "SynthesizeOnline"
            )
        if self._request.enable_word_time_offsets:
            self._words += _timings(response.words)

    def response(self) -> riva.SynthesizeSpeechResponse:
        """When all was written."""
        whole = riva.SynthesizeSpeechResponse(audio=b"".join(self._parts))
        whole.meta.text = self._request.text
        whole.meta.words.extend(self._words)
        return _with_id(whole, self._request)


class StreamedReply:
    """Sends the responses of `SynthesizeOnline`."""

    def __init__(self, first: riva.SynthesizeSpeechRequest, context: Context) -> None:
        self._first = first
        self._context = context

    async def write(self, response: pb.SynthesizeResponse) -> None:
        words = _timings(response.words) if self._first.enable_word_time_offsets else []
        if not (response.audio or words):
            return
        part = riva.SynthesizeSpeechResponse(audio=response.audio)
        if words:
            part.meta.words.extend(words)
        await self._context.write(_with_id(part, self._first))


def _with_id(
    response: riva.SynthesizeSpeechResponse, request: riva.SynthesizeSpeechRequest
) -> riva.SynthesizeSpeechResponse:
    if request.HasField("id"):
        response.id.CopyFrom(request.id)
    return response


def _timings(words: Iterable[pb.WordTime]) -> list[riva.WordTiming]:
    return [
        riva.WordTiming(
            word=word.text, start_time=round(1000 * word.start_seconds), end_time=round(1000 * word.end_seconds)
        )
        for word in words
    ]
