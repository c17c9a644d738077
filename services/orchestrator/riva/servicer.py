"""RivaSpeechSynthesis on top of our own service."""

from collections.abc import AsyncIterator

from cosyserve.errors import InvalidRequest, NotFound
from cosyserve.foreign import riva_tts_pb2 as riva
from cosyserve.foreign import riva_tts_pb2_grpc
from cosyserve.v1 import synthesis_pb2 as pb
from services.orchestrator.foreign.native_call import Context, NativeService, translating
from services.orchestrator.foreign.voices import KnownVoices, all_voices
from services.orchestrator.riva.reply import StreamedReply, WholeReply
from services.orchestrator.riva.request import translated
from services.orchestrator.riva.text_parts import text_parts
from services.orchestrator.riva.voice_names import MODEL, configurations


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
