"""CosyVoice on top of our own service."""

from cosyserve.foreign import cosyvoice_pb2 as cosyvoice
from cosyserve.foreign import cosyvoice_pb2_grpc
from cosyserve.v1 import synthesis_pb2 as pb
from services.orchestrator.cosyvoice.request import translated
from services.orchestrator.foreign.native_call import Context, NativeService, translating
from services.orchestrator.foreign.voices import KnownVoices


class CosyVoiceServicer(cosyvoice_pb2_grpc.CosyVoiceServicer):
    """service: our own, in this process."""

    def __init__(self, service: NativeService) -> None:
        self._service, self._voices = service, KnownVoices(service)

    async def Inference(  # type: ignore[override]
        self, request: cosyvoice.Request, context: Context
    ) -> None:
        async def write(response: pb.SynthesizeResponse) -> None:
            if response.audio:
                await context.write(cosyvoice.Response(tts_audio=response.audio))

        native = await translated(request, self._voices, context)
        await self._service.Synthesize(native, translating(context, write))
