"""Voices of tenants: another tenant's are not there, those of everyone are, and of the two only an
admin changes the latter. The frontend is the real one on a directory of voices.
"""

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from cosyserve.client import AsyncClient
from cosyserve.errors import NotFound, PermissionDenied
from cosyserve.foreign import cosyvoice_pb2, cosyvoice_pb2_grpc, riva_tts_pb2, riva_tts_pb2_grpc
from cosyserve.model_directory import ModelDirectory
from cosyserve.rpc.server import running
from cosyserve.v1 import synthesis_pb2, voice_pb2
from services.frontend import __main__ as frontend
from services.frontend.prompts.prompt_reader import voice_model
from services.frontend.settings import FrontendSettings
from services.frontend.voices.blobs import open_blobs
from services.frontend.voices.stored_voice import Origin, StoredVoice, now
from services.frontend.voices.voice import Voice
from services.frontend.voices.voice_notes import Labels
from services.frontend.voices.voice_store import VoiceStore
from services.orchestrator.stages.voices import VoiceStage
from tests.fuzz.upload_seeds import seeds
from tests.stacks.calls import refusal
from tests.stacks.gateway_server import gateway
from tests.stacks.in_process import HERE, orchestrated
from tests.stacks.key_holders import KeyHolder, key_holder, keys_of
from tests.stacks.scripted_stages import Script, stack, stage
from tests.stacks.up_process import TINY

ALICE, BOB, CAROL = key_holder("alice"), key_holder("bob"), key_holder("carol", tenant="alice")
ADMIN = key_holder("root", admin=True)
OWNERS = {"a-of-alice": "alice", "b-of-bob": "bob", "c-of-all": "", "d-of-alice": "alice", "e-of-bob": "bob"}
MISSING = "there is no voice 'b-of-bob'"


def store_voices(url: Path) -> None:
    store = VoiceStore(open_blobs(str(url), voice_model(ModelDirectory(TINY))))
    for name, owner in OWNERS.items():
        voice = Voice(name, (), (), b"", bytes(4 * 192))
        store.add(StoredVoice(voice, Origin("", "en", now(), "", "")), Labels(), owner)


@contextlib.asynccontextmanager
async def served(tmp_path: Path, *holders: KeyHolder) -> AsyncIterator[tuple[grpc.aio.Channel, str]]:
    url = str(tmp_path / "voices")
    settings = FrontendSettings(listen=HERE, model=TINY, drain_seconds=0.0, voices_url=url)
    load = partial(frontend.load, settings=settings)
    async with contextlib.AsyncExitStack() as exits:
        stages = {name: [await exits.enter_async_context(stage(name, Script()))] for name in ("llm", "token2wav")}
        stages["frontend"] = [await exits.enter_async_context(running(frontend.SERVICE, settings, load))]
        door, channel = await exits.enter_async_context(orchestrated(stages, keys=keys_of(holders) if holders else ""))
        yield channel, f"127.0.0.1:{door.port}"


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    async with served(tmp_path, ALICE, BOB, CAROL, ADMIN) as (_, found):
        store_voices(tmp_path / "voices")
        yield found


async def owned(client: AsyncClient) -> list[str]:
    return [voice.id for voice in await client.voices() if voice.id in OWNERS]


async def test_each_tenant_sees_its_own_voices_and_those_of_everyone(address: str) -> None:
    async with AsyncClient(address, ALICE.secret) as client:
        assert await owned(client) == ["a-of-alice", "c-of-all", "d-of-alice"]
        assert await owned(client.with_key(CAROL.secret)) == ["a-of-alice", "c-of-all", "d-of-alice"]
        assert await owned(client.with_key(BOB.secret)) == ["b-of-bob", "c-of-all", "e-of-bob"]
        assert await owned(client.with_key(ADMIN.secret)) == list(OWNERS)


async def test_a_voice_of_another_tenant_is_not_there_for_anything(address: str) -> None:
    """The same answer as for a voice that does not exist."""
    async with AsyncClient(address, ALICE.secret) as client:
        for attempt in (
            lambda: client.voice("b-of-bob"),
            lambda: client.delete_voice("b-of-bob"),
            lambda: client.update_voice("b-of-bob", display_name="mine"),
            lambda: client.synthesize("word", voice="b-of-bob").read(),
            lambda: client.synthesize_unary("word", voice="b-of-bob"),
            lambda: client.streaming_synthesize(_written(), voice="b-of-bob").read(),
        ):
            with pytest.raises(NotFound) as caught:
                await attempt()
            assert MISSING in caught.value.message
        assert (await client.with_key(BOB.secret).voice("b-of-bob")).display_name == ""


async def _written() -> AsyncIterator[str]:
    yield "word "


async def test_a_voice_of_another_tenant_is_not_there_for_other_servers_clients(address: str) -> None:
    key: Any = {"metadata": ALICE.metadata}
    async with grpc.aio.insecure_channel(address) as channel:
        riva: Any = riva_tts_pb2_grpc.RivaSpeechSynthesisStub(channel)
        cosyvoice: Any = cosyvoice_pb2_grpc.CosyVoiceStub(channel)
        listed = await riva.GetRivaSynthesisConfig(riva_tts_pb2.RivaSynthesisConfigRequest(), **key)
        names = {
            name.partition(":")[0]
            for config in listed.model_config
            for name in config.parameters["subvoices"].split(",")
        }
        assert names & OWNERS.keys() == {"a-of-alice", "c-of-all", "d-of-alice"}
        request = riva_tts_pb2.SynthesizeSpeechRequest(text="word", voice_name="cosyserve.b-of-bob")
        spoken = cosyvoice_pb2.sftRequest(tts_text="word", spk_id="b-of-bob")
        for attempt in (
            riva.Synthesize(request, **key),
            riva.SynthesizeOnline(iter([request]), **key).read(),
            cosyvoice.Inference(cosyvoice_pb2.Request(sft_request=spoken), **key).read(),
        ):
            await refusal(attempt, grpc.StatusCode.NOT_FOUND, MISSING)


async def test_a_voice_of_another_tenant_is_not_there_over_http(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def heard(*_: object) -> tuple[int, ...]:
        return (1, 2, 3)

    # The tiny model reads no recordings.
    monkeypatch.setattr(VoiceStage, "speech", heard)
    own = {"a-of-alice", "c-of-all", "d-of-alice"}
    speak = {"input": "word", "text": "word", "voice": "b-of-bob"}
    form = {"voice": "b-of-bob", "spk_id": "b-of-bob", "tts_text": "word"}
    recording = {"file": ("x.wav", seeds()["pcm16.wav"])}
    async with gateway(address) as served:
        ask = partial(served.http.request, headers=ALICE.headers)
        for path, field, name in (
            ("/v1/audio/voices", "data", "id"),
            ("/v1/voices", "voices", "voice_id"),
            ("/v2/voices?page_size=100", "voices", "voice_id"),
            ("/list_voices", "details", "spk_id"),
        ):
            answer = (await ask("GET", path)).json()
            assert {voice[name] for voice in answer[field]} & OWNERS.keys() == own, path
            assert "bob" not in str(answer), path
        attempts: tuple[tuple[str, str, dict[str, Any]], ...] = (
            ("GET", "/v1/audio/voices/b-of-bob", {}),
            ("DELETE", "/v1/audio/voices/b-of-bob", {}),
            ("GET", "/v1/voices/b-of-bob", {}),
            ("POST", "/v1/audio/speech", {"json": speak}),
            ("POST", "/v1/text-to-speech/b-of-bob", {"json": speak}),
            ("POST", "/inference_sft", {"data": form}),
            ("POST", "/v1/audio/conversions", {"data": form, "files": recording}),
        )
        for method, path, sent in attempts:
            refused = await ask(method, path, **sent)
            assert (refused.status_code, MISSING in refused.text) == (404, True), (path, refused.text)


async def test_who_may_change_a_voice(address: str) -> None:
    async with AsyncClient(address, ALICE.secret) as client:
        with pytest.raises(PermissionDenied, match="belongs to everyone"):
            await client.delete_voice("c-of-all")
        assert (await client.update_voice("a-of-alice", display_name="Ours")).display_name == "Ours"
        await client.with_key(CAROL.secret).delete_voice("d-of-alice")
        await client.with_key(ADMIN.secret).delete_voice("c-of-all")
        await client.with_key(ADMIN.secret).delete_voice("e-of-bob")
        assert await owned(client.with_key(ADMIN.secret)) == ["a-of-alice", "b-of-bob"]


async def test_pages_name_no_voice_of_another_tenant(address: str) -> None:
    async with AsyncClient(address, ALICE.secret) as client:
        seen, token = [], ""
        while True:
            request = synthesis_pb2.ListVoicesRequest(page_size=1, page_token=token)
            page = await client._stub.ListVoices(request, metadata=ALICE.metadata)
            seen += [voice.id for voice in page.voices if voice.id in OWNERS]
            assert all(voice.owner in ("", "alice") for voice in page.voices)
            token = page.next_page_token
            if not token:
                break
        assert seen == ["a-of-alice", "c-of-all", "d-of-alice"]


async def test_without_keys_every_voice_is_there(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, found), AsyncClient(found) as client:
        store_voices(tmp_path / "voices")
        assert await owned(client) == list(OWNERS)
        await client.delete_voice("b-of-bob")


async def test_a_frontend_that_knows_no_owners_makes_no_voice_for_a_tenant(tmp_path: Path) -> None:
    async with stack(keys=keys_of([ALICE])) as old:
        request = synthesis_pb2.CreateVoiceRequest(draft=voice_pb2.VoiceDraft(id="x", audio=b"1"))
        await refusal(old.stub.CreateVoice(request, metadata=ALICE.metadata), grpc.StatusCode.FAILED_PRECONDITION)
