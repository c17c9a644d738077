"""Voices are warm before the first request: on every decoder, and again on one that comes back."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from services.token2wav.continuous import ContinuousDecoder
from services.token2wav.request import Profile
from tests.pipeline.calling import speak
from tests.pipeline.scripted import expected_audio, stack
from tests.whole_stack import whole_stack


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0.01)


async def test_each_decoder_is_warmed_when_it_comes_up() -> None:
    async with stack({"token2wav": 2}, warm_voices=4) as running:
        await _until(lambda: [script.warmed for script in running.scripts["token2wav"]] == [["h"], ["h"]])
        await running.services["token2wav"][1].set_serving(False)
        await asyncio.sleep(0.2)
        await running.services["token2wav"][1].set_serving(True)
        await _until(lambda: running.scripts["token2wav"][1].warmed == ["h", "h"])
        assert running.scripts["token2wav"][0].warmed == ["h"]
        audio, _ = await speak(running, "word")
    assert audio == expected_audio("word")


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
