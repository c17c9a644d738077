"""Client methods for voices."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar, cast

import grpc

from cosyserve import telemetry
from cosyserve.client.types import VoiceDetails, VoiceLine, read_voice_details, read_voice_line
from cosyserve.errors import Unavailable
from cosyserve.rpc.calls import as_error
from cosyserve.v1 import synthesis_pb2 as pb
from cosyserve.v1 import synthesis_pb2_grpc, voice_pb2

_PAGE = 1000
_MAKING_SECONDS = 150.0
T = TypeVar("T")


class VoiceCalls:
    """Methods for voices. Server errors are raised as the classes of cosyserve.errors. timeout:
    seconds, of each call.
    """

    def __init__(self, target: str, channel: grpc.aio.Channel) -> None:
        self._voices_target = target
        self._voices_stub = cast(
            "synthesis_pb2_grpc.SynthesisServiceAsyncStub", synthesis_pb2_grpc.SynthesisServiceStub(channel)
        )

    async def voices(self, timeout: float | None = 10.0) -> list[VoiceLine]:  # noqa: ASYNC109 - the call's deadline, sent to the server
        """All voices, ordered by id."""
        listed, token = list[VoiceLine](), ""
        while True:
            request = pb.ListVoicesRequest(page_size=_PAGE, page_token=token)
            page = await self._ask(self._voices_stub.ListVoices, request, timeout)
            listed += map(read_voice_line, page.voices)
            token = page.next_page_token
            if not token:
                return listed

    async def voice(self, voice_id: str, timeout: float | None = 10.0) -> VoiceDetails:  # noqa: ASYNC109
        """The details of a voice."""
        request = pb.SynthesisServiceGetVoiceRequest(id=voice_id)
        return read_voice_details((await self._ask(self._voices_stub.GetVoice, request, timeout)).voice)

    async def create_voice(
        self,
        audio: bytes,
        *,
        voice_id: str = "",
        transcript: str = "",
        language_code: str = "",
        provenance: str = "",
        display_name: str = "",
        description: str = "",
        labels: Mapping[str, str] | None = None,
        cut_prompt: bool = False,
        timeout: float | None = _MAKING_SECONDS,  # noqa: ASYNC109
    ) -> VoiceDetails:
        """Create a voice from the bytes of a sound file; ranges as in VoiceDraft of voice.proto,
        which the server checks. A lost connection is retried once: the request has an id, so that
        the voice is not created twice.
        """
        draft = voice_pb2.VoiceDraft(
            id=voice_id or f"voice-{secrets.token_hex(8)}",
            audio=audio,
            transcript=transcript,
            language_code=language_code,
            provenance=provenance,
            metadata=voice_pb2.VoiceMetadata(display_name=display_name, description=description, labels=labels or {}),
            request_id=secrets.token_hex(16),
            cut_prompt=cut_prompt,
        )
        request = pb.CreateVoiceRequest(draft=draft)
        try:
            response = await self._ask(self._voices_stub.CreateVoice, request, timeout)
        except Unavailable:
            response = await self._ask(self._voices_stub.CreateVoice, request, timeout)
        return read_voice_details(response.voice)

    async def update_voice(
        self,
        voice_id: str,
        *,
        display_name: str | None = None,
        description: str | None = None,
        labels: Mapping[str, str] | None = None,
        timeout: float | None = 10.0,  # noqa: ASYNC109
    ) -> VoiceDetails:
        """Change the metadata of a voice; None leaves a field unchanged."""
        given = {"display_name": display_name, "description": description, "labels": labels}
        changes = {name: value for name, value in given.items() if value is not None}
        if not changes:
            return await self.voice(voice_id, timeout)
        request = pb.UpdateVoiceRequest(id=voice_id, metadata=voice_pb2.VoiceMetadata(**changes))  # type: ignore[arg-type]
        request.update_mask.paths.extend(changes)
        return read_voice_details((await self._ask(self._voices_stub.UpdateVoice, request, timeout)).voice)

    async def delete_voice(self, voice_id: str, timeout: float | None = 10.0) -> None:  # noqa: ASYNC109
        """Delete a voice for good."""
        await self._ask(self._voices_stub.DeleteVoice, pb.DeleteVoiceRequest(id=voice_id), timeout)

    async def _ask(self, method: Callable[..., Awaitable[T]], request: object, timeout: float | None) -> T:  # noqa: ASYNC109
        try:
            return await method(request, timeout=timeout, metadata=telemetry.outgoing())
        except grpc.aio.AioRpcError as error:
            raise as_error(error, f"server at {self._voices_target}") from error
