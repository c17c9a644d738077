"""Our responses as those of Riva's contract."""

from collections.abc import Iterable

from cosyserve.errors import InvalidRequest
from cosyserve.foreign import riva_tts_pb2 as riva
from cosyserve.v1 import synthesis_pb2 as pb
from services.orchestrator.foreign.native_call import Context

_MOST_BYTES = 4_000_000
"""Audio in one message as most clients accept it: their default limit is 4 MiB."""


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
        return _named(whole, self._request)


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
        await self._context.write(_named(part, self._first))


def _named(
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
