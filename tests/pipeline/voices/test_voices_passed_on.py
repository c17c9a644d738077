"""What the public door does with voices when a frontend dies in the middle: asked again, and
nothing done twice or lost.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from cosyserve.rpc.calls import retry_delay
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1 import synthesis_pb2, voice_pb2
from tests.stacks import scripted_stages as scripted
from tests.stacks.calls import refusal, refused


@dataclass
class Storage:
    """What two scripted frontends share."""

    voices: dict[str, str] = field(default_factory=dict)
    """Id to the request that made it."""
    drafts: list[voice_pb2.VoiceDraft] = field(default_factory=list)
    dying: int = 0
    """So many calls are carried out and then not answered."""
    gate: asyncio.Event = field(default_factory=asyncio.Event)


class Frontend(scripted.Frontend):
    storage: Storage

    async def _answer(self, context: Any) -> None:
        if self.storage.dying:
            self.storage.dying -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this one is gone")

    async def CreateVoice(
        self, request: pb.FrontendServiceCreateVoiceRequest, context: Any
    ) -> pb.FrontendServiceCreateVoiceResponse:
        draft = request.draft
        self.storage.drafts.append(draft)
        if draft.audio == b"wait":
            await self.storage.gate.wait()
        if self.storage.voices.setdefault(draft.id, draft.request_id) != draft.request_id:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, "there is one")
        await self._answer(context)
        return pb.FrontendServiceCreateVoiceResponse(
            voice=voice_pb2.VoiceDetails(summary=voice_pb2.VoiceSummary(id=draft.id))
        )

    async def DeleteVoice(
        self, request: pb.FrontendServiceDeleteVoiceRequest, context: Any
    ) -> pb.FrontendServiceDeleteVoiceResponse:
        if self.storage.voices.pop(request.id, None) is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is none")
        await self._answer(context)
        return pb.FrontendServiceDeleteVoiceResponse()


@pytest.fixture
async def storage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Storage]:
    shared = Storage()
    monkeypatch.setattr(Frontend, "storage", shared, raising=False)
    monkeypatch.setitem(scripted.SERVICERS, "frontend", Frontend)
    yield shared
    shared.gate.set()


def draft(**fields: Any) -> synthesis_pb2.CreateVoiceRequest:
    return synthesis_pb2.CreateVoiceRequest(draft=voice_pb2.VoiceDraft(**fields))


async def test_a_voice_is_made_once_though_the_answer_was_lost(storage: Storage) -> None:
    async with scripted.stack({"frontend": 2}) as stack:
        storage.dying = 1
        made = await stack.stub.CreateVoice(draft(id="me", audio=b"x"))
        assert made.voice.summary.id == "me"
        assert [each.id for each in storage.drafts] == ["me", "me"]
        assert len({each.request_id for each in storage.drafts}) == 1
        assert await refused(stack.stub.CreateVoice(draft(id="me", audio=b"x"))) == (
            grpc.StatusCode.ALREADY_EXISTS,
            "there is one",
        )


async def test_a_voice_without_an_id_gets_one_before_it_is_passed_on(storage: Storage) -> None:
    async with scripted.stack({"frontend": 2}) as stack:
        storage.dying = 1
        made = await stack.stub.CreateVoice(draft(audio=b"x"))
        assert made.voice.summary.id.startswith("voice-")
        assert list(storage.voices) == [made.voice.summary.id]


async def test_a_voice_that_the_dead_one_deleted_is_deleted(storage: Storage) -> None:
    async with scripted.stack({"frontend": 2}) as stack:
        await stack.stub.CreateVoice(draft(id="me", audio=b"x"))
        storage.dying = 1
        await stack.stub.DeleteVoice(synthesis_pb2.DeleteVoiceRequest(id="me"))
        assert storage.voices == {}
        await refusal(stack.stub.DeleteVoice(synthesis_pb2.DeleteVoiceRequest(id="me")), grpc.StatusCode.NOT_FOUND)


async def test_too_many_uploads_are_refused_at_the_door_and_speech_goes_on(storage: Storage) -> None:
    async with scripted.stack(max_voice_makings=1) as stack:
        making = asyncio.ensure_future(stack.stub.CreateVoice(draft(id="slow", audio=b"wait")))
        async with asyncio.timeout(10):
            while not storage.drafts:
                await asyncio.sleep(0.01)
        error = await refusal(
            stack.stub.CreateVoice(draft(id="me", audio=b"x")),
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "1 of 1 places for new voices are in use",
        )
        assert retry_delay(error)
        heard = [
            response.audio
            async for response in stack.stub.Synthesize(
                synthesis_pb2.SynthesizeRequest(text="anna sings", sentence_pause_milliseconds=0)
            )
        ]
        assert b"".join(heard) == scripted.expected_audio("anna sings")
        storage.gate.set()
        assert (await making).voice.summary.id == "slow"
