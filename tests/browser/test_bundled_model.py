"""The page in front of every service with the bundled model, as `cosyserve up` starts them."""

import wave
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from cosyserve.client import AsyncClient
from tests.browser.chromium import Browser, Tab
from tests.browser.test_speaking import FOLLOW, WATERFALL, in_order
from tests.stacks.up_process import DEMO, Up

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXT = "It is 7 o'clock, and the train is late."
DONE = "document.querySelector('#status').textContent === 'Done.'"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    store = {"COSYSERVE_FRONTEND_VOICES_URL": str(tmp_path_factory.mktemp("voices"))}
    up = Up("--model", str(DEMO), "--backend", "torch", "--http", "127.0.0.1:0", environ=store)
    up.line_with("ready: ")
    yield up
    assert up.end() == 0


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: Browser, running: Up) -> AsyncIterator[Tab]:
    """The page, opened; at the end its console must hold no error or warning."""
    address = next(word for word in running.line_with("ready: ").split() if word.startswith("http://"))
    async with browser.tab() as opened:
        await opened.open(f"{address}/")
        await opened.until("document.querySelectorAll('#voice option').length >= 2")
        yield opened
        assert opened.complaints == []


async def test_a_sentence_is_heard_word_by_word(tab: Tab) -> None:
    voices = await tab.value("[...document.querySelector('#voice').options].map((option) => option.text)")
    assert voices == ["Heart · female · American English", "Michael · male · American English"]
    await tab.value(FOLLOW)
    await tab.fill("#text", TEXT)
    await tab.click("#speak")
    await tab.until(DONE, 120)
    assert in_order(await tab.value("window.marked"), TEXT.split())
    stages = await tab.value(WATERFALL)
    assert [stage for stage, _, _ in stages] == ["frontend", "llm_prefill", "llm_decode", "flow", "vocoder"]
    assert all(milliseconds > 0 and shown for _, milliseconds, shown in stages)
    order = await tab.value(
        "['wish', 'connected', 'arrived', 'heard'].map((name) => performance.getEntriesByName(name)[0].startTime)"
    )
    assert order == sorted(order)


async def test_the_trace_of_the_page_is_in_the_log_of_the_orchestrator(tab: Tab, running: Up) -> None:
    await tab.click("#speak")
    await tab.until("document.querySelector('#trace-id').textContent")
    trace = await tab.text("#trace-id")
    await tab.until(DONE, 120)
    assert "orchestrator" in running.line_with(trace)


async def test_a_voice_is_cloned_of_a_recording_and_speaks(tab: Tab, running: Up, tmp_path: Path) -> None:
    async with AsyncClient(running.address) as client:
        said = "The weather was fine, so we walked along the river."
        async with client.synthesize(said, voice="am_michael", seed=3) as speech:
            audio = await speech.read()
    with wave.open(str(tmp_path / "sample.wav"), "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes(audio)
    await tab.click("#clone")
    await tab.choose_file("#sample", tmp_path / "sample.wav")
    await tab.fill("#voice-name", "Mike")
    await tab.fill("#voice-transcript", said)
    await tab.click("#voice-consent")
    await tab.click("#cloning-submit")
    await tab.until("document.querySelector('#status').textContent === 'The voice “Mike” is ready.'", 120)
    await tab.fill("#text", TEXT)
    await tab.click("#speak")
    await tab.until(DONE, 120)
    async with AsyncClient(running.address) as client:
        (made,) = [voice for voice in await client.voices() if not voice.is_preset]
        assert made.id == await tab.value("document.querySelector('#voice').value")
        assert (await client.voice(made.id)).provenance.startswith("Consent of the speaker confirmed on the page")
