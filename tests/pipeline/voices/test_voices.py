"""Voices at the public door. They are warm before the first request: on every decoder, and again on
one that comes back. When a frontend dies in the middle it is asked again, and nothing is done twice
or lost.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import grpc
import pytest

from cosyserve.errors import NotFound, Overloaded
from cosyserve.rpc.calls import retry_delay
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1 import synthesis_pb2, voice_pb2
from services.orchestrator.speech.conditioning import Conditioning, Voice
from services.orchestrator.stages.voice_contents import VoiceContents
from services.orchestrator.voice_warming import VoiceWarming
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.inputs.request import Profile
from tests.pipeline.calling import speak, spoken
from tests.stacks import scripted_stages as scripted
from tests.stacks.calls import refusal, refused, until
from tests.stacks.scripted_stages import Stack, expected_audio, prompted_voice
from tests.stacks.whole_stack import whole_stack


@pytest.mark.start(replicas={"token2wav": 2}, voice=prompted_voice("anna", [1], [2, 3]), warm_voices=4)
async def test_each_decoder_is_warmed_when_it_comes_up(running: Stack) -> None:
    await until(
        lambda: [script.warmed for script in running.scripts["token2wav"]] == [["hash of anna"], ["hash of anna"]]
    )
    await running.services["token2wav"][1].set_serving(False)
    await asyncio.sleep(0.2)
    await running.services["token2wav"][1].set_serving(True)
    await until(lambda: running.scripts["token2wav"][1].warmed == ["hash of anna", "hash of anna"])
    assert running.scripts["token2wav"][0].warmed == ["hash of anna"]
    await running.services["frontend"][0].set_serving(False)
    await asyncio.sleep(0.2)
    await running.services["frontend"][0].set_serving(True)
    await asyncio.sleep(0.2)
    assert [script.warmed for script in running.scripts["token2wav"]] == [
        ["hash of anna"],
        ["hash of anna", "hash of anna"],
    ]
    audio, _ = await speak(running, "word")
    assert audio == expected_audio("word")


async def test_a_voice_that_fails_leaves_the_others_warm(caplog: pytest.LogCaptureFixture) -> None:
    warmed: list[str] = []
    replica = Mock(target="here:1")

    async def page(size: int, token: str) -> pb.FrontendServiceListVoicesResponse:
        listed = [voice_pb2.VoiceSummary(id=name) for name in ("anna", "gone", "later", "bert")]
        return pb.FrontendServiceListVoicesResponse(voices=listed)

    async def voice(name: str) -> Voice:
        if name in ("", "gone"):
            raise NotFound("there is none")
        return Voice(name, "h", (), () if name == "later" else (1,), b"", b"")

    async def warm(replica: object, shown: Conditioning) -> None:
        if shown.voice == "anna":
            raise Overloaded("full")
        warmed.append(shown.voice)

    up = SimpleNamespace(serving=True, serving_replicas=lambda: [replica])
    decoders = SimpleNamespace(replicas=up, warm=warm)
    warming = VoiceWarming(SimpleNamespace(replicas=up, voice=voice, page=page), decoders, most_voices=8)
    task = asyncio.create_task(warming.run())
    await until(lambda: warmed == ["bert"])
    task.cancel()
    assert "a voice is not warm on token2wav at here:1: RESOURCE_EXHAUSTED" in caplog.text
    assert "gone" not in caplog.text


async def test_the_first_request_finds_its_voices_state() -> None:
    async with whole_stack(Path("models/demo"), warm_voices=2) as running:
        decoder = running.token2wav.decoders[Profile.CONTINUOUS]
        assert isinstance(decoder, ContinuousDecoder)
        await until(lambda: decoder.prompts.states == 2)
        cold = decoder.prompts
        assert (cold.hits, cold.misses) == (0, 2)
        for voice in ("af_heart", "am_michael"):
            await running.client.synthesize("Warm.", voice=voice, seed=1).read()
        assert (decoder.prompts.hits, decoder.prompts.misses) == (2, 2)


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


@pytest.mark.start(replicas={"frontend": 2})
async def test_a_voice_is_made_once_though_the_answer_was_lost(storage: Storage, running: Stack) -> None:
    storage.dying = 1
    assert (await running.stub.CreateVoice(draft(id="me", audio=b"x"))).voice.summary.id == "me"
    assert [each.id for each in storage.drafts] == ["me", "me"]
    assert len({each.request_id for each in storage.drafts}) == 1
    assert await refused(running.stub.CreateVoice(draft(id="me", audio=b"x"))) == (
        grpc.StatusCode.ALREADY_EXISTS,
        "there is one",
    )


@pytest.mark.start(replicas={"frontend": 2})
async def test_a_voice_without_an_id_gets_one_before_it_is_passed_on(storage: Storage, running: Stack) -> None:
    storage.dying = 1
    made = await running.stub.CreateVoice(draft(audio=b"x"))
    assert made.voice.summary.id.startswith("voice-")
    assert list(storage.voices) == [made.voice.summary.id]


@pytest.mark.start(replicas={"frontend": 2})
async def test_a_voice_that_the_dead_one_deleted_is_deleted(storage: Storage, running: Stack) -> None:
    await running.stub.CreateVoice(draft(id="me", audio=b"x"))
    storage.dying = 1
    await running.stub.DeleteVoice(synthesis_pb2.DeleteVoiceRequest(id="me"))
    assert storage.voices == {}
    await refusal(running.stub.DeleteVoice(synthesis_pb2.DeleteVoiceRequest(id="me")), grpc.StatusCode.NOT_FOUND)


@pytest.mark.start(max_voice_makings=1)
async def test_too_many_uploads_are_refused_at_the_door_and_speech_goes_on(storage: Storage, running: Stack) -> None:
    making = asyncio.ensure_future(running.stub.CreateVoice(draft(id="slow", audio=b"wait")))
    await until(lambda: storage.drafts)
    error = await refusal(
        running.stub.CreateVoice(draft(id="me", audio=b"x")),
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "1 of 1 places for new voices are in use",
    )
    assert retry_delay(error)
    await spoken(running, "anna sings")
    storage.gate.set()
    assert (await making).voice.summary.id == "slow"


@pytest.mark.start(voice=prompted_voice("anna", [1], [2, 3]))
async def test_a_voice_and_a_text_are_one_call_to_the_frontend(running: Stack) -> None:
    """Later requests leave its content where it is; a voice that is made again has its new one, and
    one that is gone is gone at once.
    """
    frontend, llm = running.scripts["frontend"][0], running.scripts["llm"][0]
    for _ in range(2):
        await spoken(running, "word", voice="anna")
    assert (frontend.voices_beside, frontend.voices_asked) == (["anna", "anna"], [])
    frontend.voice = prompted_voice("anna", [1], [4, 5, 6])
    frontend.voice.content_hash = "another"
    await spoken(running, "word", voice="anna")
    assert [list(setup.prompt_speech_tokens) for setup in llm.llm_setups] == [[2, 3], [2, 3], [4, 5, 6]]
    assert (await refused(speak(running, "word", voice="nobody")))[0] == grpc.StatusCode.NOT_FOUND


@pytest.mark.start(voice=prompted_voice("anna", [1], [2, 3]))
async def test_a_frontend_of_an_earlier_release_is_asked_for_the_voice_by_itself(running: Stack) -> None:
    frontend = running.scripts["frontend"][0]
    frontend.answers_beside = False
    await spoken(running, "word", voice="anna")
    assert (frontend.voices_beside, frontend.voices_asked) == ([], ["anna"])


async def test_a_text_of_which_nothing_is_heard_keeps_nobody_waiting_for_its_voice(running: Stack) -> None:
    async def nothing(request: pb.AnalyzeRequest, context: Any) -> AsyncIterator[pb.AnalyzeResponse]:
        none: list[pb.AnalyzeResponse] = []
        for response in none:
            yield response

    running.scripts["frontend"][0].analysis = nothing
    assert (await speak(running, "word"))[0] == b""
    assert running.scripts["frontend"][0].voices_asked == [""]


@pytest.mark.start(replicas={"frontend": 2}, voice=prompted_voice("anna", [1], [2, 3]))
async def test_a_voice_that_is_deleted_while_it_is_heard_is_not_asked_for_again(running: Stack) -> None:
    """The frontend is lost in mid-text; the one that takes over need not find the voice."""
    sentences = 0

    async def lose(context: Any) -> None:
        nonlocal sentences
        sentences += 1
        if sentences == 3:
            await asyncio.sleep(0.05)  # a status must not overtake what was written
            await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")

    for script in running.scripts["frontend"]:
        script.analyze = lose
    assert (await speak(running, "one two three four", voice="anna"))[0] == expected_audio("one two three four")
    assert [name for script in running.scripts["frontend"] for name in script.voices_beside] == ["anna"]


@pytest.mark.start(voice=prompted_voice("anna", [1], [2, 3]))
async def test_the_orchestrator_keeps_nothing_of_a_voice_that_is_gone(
    running: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[str] = []
    before = VoiceContents.missing
    monkeypatch.setattr(
        VoiceContents, "missing", lambda self, asked: (dropped.append(asked.request.id), before(self, asked))[1]
    )
    assert (await refused(speak(running, "word", voice="nobody")))[0] == grpc.StatusCode.NOT_FOUND
    assert dropped == ["nobody"]


@pytest.mark.parametrize(
    "left_out", [2, pytest.param(0, marks=pytest.mark.start(voices_cache_bytes=0))], ids=["by default", "no room"]
)
async def test_as_much_of_voices_is_kept_as_the_setting_allows(running: Stack, left_out: int) -> None:
    for _ in range(3):
        assert (await speak(running, "word"))[0] == expected_audio("word")
    assert running.scripts["frontend"][0].contents_left_out == left_out
