"""What this release added, asked of a deployment in which a part is still of the last one: it
works, or it fails with a sentence that says what to update.
"""

import pytest

from cosyserve.audio.encoding import CompressedEncoding
from cosyserve.client import AsyncClient
from cosyserve.errors import FailedPrecondition, InternalFault, InvalidRequest
from tests.stacks.gateway_server import gateway
from tests.stacks.key_holders import key_holder, keys_of
from tests.upgrade.conftest import Mix, Releases
from tests.upgrade.every_call import SEED, sound_file

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]
OLD_FRONTEND: Mix = ("new", "old", "new", "new")
OLD_STAGES: Mix = ("new", "old", "old", "old")
OLD_ORCHESTRATOR: Mix = ("old", "new", "new", "new")
LIMITED = {"max_sentence_characters": 40}
LONG = "This sentence is a good deal longer than the forty characters that the caller allows for it."


async def test_a_limit_of_sentences_needs_the_new_frontend(releases: Releases) -> None:
    async with releases.mixed(OLD_FRONTEND) as address, AsyncClient(address) as client:
        with pytest.raises(FailedPrecondition, match="a frontend of an earlier release knows no max_sentence_char"):
            await client.synthesize(LONG, seed=SEED, **LIMITED).read()
        assert len(await client.synthesize("Go on.", seed=SEED).read()) > 12_000


async def test_phonemes_of_the_international_alphabet_need_the_new_frontend(releases: Releases) -> None:
    async with releases.mixed(OLD_FRONTEND) as address, AsyncClient(address) as client:
        with pytest.raises(InvalidRequest, match="Nike"):
            await client.synthesize("Nike.", seed=SEED, pronunciations={"Nike": "/ipa:ˈnaɪki/"}).read()


async def test_compressed_audio_is_made_in_front_of_old_stages(releases: Releases) -> None:
    async with releases.mixed(OLD_STAGES) as address, AsyncClient(address) as client:
        assert (await client.synthesize("Go on.", seed=SEED, encoding=CompressedEncoding.MP3).read())[:3] == b"ID3"


async def test_an_old_orchestrator_refuses_encodings_that_it_does_not_know(releases: Releases) -> None:
    async with releases.mixed(OLD_ORCHESTRATOR) as address, AsyncClient(address) as client:
        with pytest.raises(InvalidRequest, match="encoding"):
            await client.synthesize("Go on.", seed=SEED, encoding=CompressedEncoding.MP3).read()


async def test_voices_of_tenants_need_the_new_frontend(releases: Releases) -> None:
    """What an old frontend made everyone's is deleted again."""
    tenant, name = key_holder("alice"), releases.fresh_name()
    async with (
        releases.mixed(OLD_FRONTEND, KEYS=keys_of([tenant])) as address,
        AsyncClient(address, api_key=tenant.secret) as client,
    ):
        audio = await client.synthesize(LONG, seed=SEED).read()
        with pytest.raises(FailedPrecondition, match="a frontend of an earlier release knows no owners of voices"):
            await client.create_voice(sound_file(audio), voice_id=name, transcript=LONG, language_code="en")
        assert name not in [voice.id for voice in await client.voices()]


async def test_a_voice_of_a_tenant_stays_closed_to_an_old_frontend(releases: Releases) -> None:
    """No caller can speak with it through a frontend that knows no owners. Such a frontend cannot
    list voices while there is one: the page on upgrades says so.
    """
    owner, other, name = key_holder("alice"), key_holder("bob"), releases.fresh_name()
    keys = keys_of([owner, other])
    async with (
        releases.mixed(("new", "new", "new", "new"), KEYS=keys) as address,
        AsyncClient(address, api_key=owner.secret) as client,
    ):
        audio = await client.synthesize(LONG, seed=SEED).read()
        await client.create_voice(sound_file(audio), voice_id=name, transcript=LONG, language_code="en")
        try:
            async with (
                releases.mixed(OLD_FRONTEND, KEYS=keys) as old,
                AsyncClient(old, api_key=other.secret) as stranger,
            ):
                with pytest.raises(InternalFault, match="owner"):
                    await stranger.voices()
                with pytest.raises(InternalFault, match="owner"):
                    await stranger.synthesize("Go on.", seed=SEED, voice=name).read()
                assert len(await stranger.synthesize("Go on.", seed=SEED).read()) > 12_000
            assert name in [voice.id for voice in await client.voices()]
        finally:
            await client.delete_voice(name)


async def test_the_gateway_speaks_through_an_old_orchestrator(releases: Releases) -> None:
    body = {"model": "cosyvoice2", "input": "Go on.", "voice": "af_heart", "response_format": "wav", "seed": SEED}
    async with releases.mixed(OLD_ORCHESTRATOR) as address, gateway(address) as served:
        answer = await served.http.post("/v1/audio/speech", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        assert answer.content[:4] == b"RIFF"
