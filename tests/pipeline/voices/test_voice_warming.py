"""Voices are warm before the first request: on every decoder, and again on one that comes back."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from cosyserve.errors import NotFound, Overloaded
from cosyserve.v1 import voice_pb2
from services.orchestrator.speech.conditioning import Conditioning, Voice
from services.orchestrator.voice_warming import VoiceWarming
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.inputs.request import Profile
from tests.pipeline.calling import speak
from tests.stacks.scripted_stages import Stack, expected_audio, prompted_voice
from tests.stacks.whole_stack import whole_stack


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0.01)


@pytest.mark.start({"token2wav": 2}, voice=prompted_voice("anna", [1], [2, 3]), warm_voices=4)
async def test_each_decoder_is_warmed_when_it_comes_up(running: Stack) -> None:
    await _until(
        lambda: [script.warmed for script in running.scripts["token2wav"]] == [["hash of anna"], ["hash of anna"]]
    )
    await running.services["token2wav"][1].set_serving(False)
    await asyncio.sleep(0.2)
    await running.services["token2wav"][1].set_serving(True)
    await _until(lambda: running.scripts["token2wav"][1].warmed == ["hash of anna", "hash of anna"])
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

    async def page(size: int, token: str) -> tuple[list[voice_pb2.VoiceSummary], str]:
        return [voice_pb2.VoiceSummary(id=name) for name in ("anna", "gone", "later", "bert")], ""

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
    await _until(lambda: warmed == ["bert"])
    task.cancel()
    assert "a voice is not warm on token2wav at here:1: RESOURCE_EXHAUSTED" in caplog.text
    assert "gone" not in caplog.text


async def test_the_first_request_finds_its_voices_state() -> None:
    async with whole_stack(Path("models/demo"), warm_voices=2) as running:
        decoder = running.token2wav.decoders[Profile.CONTINUOUS]
        assert isinstance(decoder, ContinuousDecoder)
        await _until(lambda: decoder.prompts.states == 2)
        cold = decoder.prompts
        assert (cold.hits, cold.misses) == (0, 2)
        for voice in ("af_heart", "am_michael"):
            await running.client.synthesize("Warm.", voice=voice, seed=1).read()
        assert (decoder.prompts.hits, decoder.prompts.misses) == (2, 2)
