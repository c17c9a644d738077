"""The voice methods of SynthesisService; the frontend, which stores the voices, answers them."""

import secrets
from typing import Any

import grpc

from cosyserve.v1 import synthesis_pb2 as pb
from services.orchestrator.load_control.admission import Admission
from services.orchestrator.stages.voices import VoiceStage
from services.orchestrator.validation import require_size

Context = grpc.aio.ServicerContext[Any, Any]


class VoiceMethods:
    """most_makings: uploads at once; more are refused with a retry hint."""

    def __init__(self, voices: VoiceStage, most_makings: int) -> None:
        self._voices = voices
        self._makings = Admission(most_makings, "places for new voices")

    async def ListVoices(self, request: pb.ListVoicesRequest, context: Context) -> pb.ListVoicesResponse:
        voices, token = await self._voices.page(request.page_size, request.page_token)
        return pb.ListVoicesResponse(voices=voices, next_page_token=token)

    async def GetVoice(
        self, request: pb.SynthesisServiceGetVoiceRequest, context: Context
    ) -> pb.SynthesisServiceGetVoiceResponse:
        return pb.SynthesisServiceGetVoiceResponse(voice=await self._voices.describe(request.id))

    async def CreateVoice(self, request: pb.CreateVoiceRequest, context: Context) -> pb.CreateVoiceResponse:
        draft = request.draft
        require_size("draft.audio", draft.audio)
        with self._makings.admit():
            draft.id = draft.id or f"voice-{secrets.token_hex(8)}"
            draft.request_id = draft.request_id or secrets.token_hex(16)
            return pb.CreateVoiceResponse(voice=await self._voices.create(draft))

    async def UpdateVoice(self, request: pb.UpdateVoiceRequest, context: Context) -> pb.UpdateVoiceResponse:
        return pb.UpdateVoiceResponse(
            voice=await self._voices.update(request.id, request.metadata, request.update_mask.paths)
        )

    async def DeleteVoice(self, request: pb.DeleteVoiceRequest, context: Context) -> pb.DeleteVoiceResponse:
        await self._voices.delete(request.id)
        return pb.DeleteVoiceResponse()
