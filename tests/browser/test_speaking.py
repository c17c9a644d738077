"""A person writes a text and hears it, in a real browser: the AudioWorklet plays, words follow, the
waterfall is drawn.
"""

import asyncio
import io
import re
from pathlib import Path

import pytest
import soundfile

from tests.browser.chromium import CTRL
from tests.browser.conftest import Opening, Page
from tests.browser.speech_service import RATE, STAGES, sound
from tests.stacks.calls import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "Dinner costs $12, Dr. Smith said."
SPOKEN = ["dinner", "costs", "twelve", "dollars", "doctor", "smith", "said"]
MARKED = ["Dinner", "costs", "$12, Dr.", "Smith", "said."]
"""Neighbours that are written otherwise than they are spoken are marked together."""
FOLLOW = """
window.marked = [];
new MutationObserver(() => {
  const now = [...document.querySelectorAll("#words .now")].map((span) => span.textContent).join(" ");
  if (now && now !== window.marked.at(-1)) window.marked.push(now);
}).observe(document.querySelector("#words"), { subtree: true, attributes: true });
"""
WATERFALL = """[...document.querySelectorAll("#waterfall tbody tr[data-stage]")].map((row) => [
  row.dataset.stage, Number(row.cells[2].textContent), row.querySelector("i").getBoundingClientRect().width > 1])"""


def in_order(marked: list[str], words: list[str]) -> bool:
    """Whether words were marked one after the other, none twice; a busy machine may draw too seldom
    for each of them.
    """
    left = iter(words)
    return len(marked) >= 3 and all(word in left for word in marked)


async def test_sound_begins_before_synthesis_ends_and_words_follow(page: Page) -> None:
    """The service holds everything behind 0.4 s of sound until the first sample was played."""
    page.service.words = SPOKEN
    await page.tab.value(FOLLOW)
    await page.tab.fill("#text", TEXT)
    await page.tab.click("#speak")
    await page.heard()
    assert not page.service.spoken[0].ended.is_set()
    assert await page.tab.value("performance.getEntriesByName('summary').length") == 0
    assert await page.tab.text("#speak") == "Stop"
    page.service.gate.set()
    await page.done()
    spoken = page.service.spoken[0]
    assert spoken.text == TEXT
    assert spoken.setup.request.audio_format.sample_rate_hertz == RATE
    assert in_order(await page.tab.value("window.marked"), MARKED)
    assert await page.tab.value(WATERFALL) == [[stage, figure, True] for stage, figure in STAGES.items()]
    trace = await page.tab.text("#trace-id")
    assert spoken.metadata["traceparent"].split("-")[1] == trace
    facts = await page.tab.text("#facts")
    assert f"seed {spoken.setup.request.seed}" in facts
    assert "1.4 s · real-time factor 0.20" in facts


async def test_stop_silences_the_page_and_cancels_the_speech(page: Page) -> None:
    await page.tab.click("#speak")
    await page.heard()
    await page.tab.click("#speak")
    assert await page.tab.text("#speak") == "Speak"
    assert await page.tab.text("#status") == "Stopped."
    await until(page.service.spoken[0].ended.is_set)
    assert page.service.spoken[0].cancelled
    # And the next one is spoken.
    page.service.gate.set()
    await page.tab.click("#speak")
    await page.done()


async def test_stopping_before_the_first_sound_leaves_no_speech_behind(page: Page) -> None:
    page.service.at_once = 0
    await page.tab.click("#speak")
    await until(lambda: page.service.spoken)
    await page.tab.click("#speak")
    assert await page.tab.text("#timing-total") == "There was no sound."
    await until(page.service.spoken[0].ended.is_set)
    assert page.service.spoken[0].cancelled
    page.service.gate.set()
    await page.tab.click("#speak")
    await page.done()


async def test_speaking_again_cancels_what_is_being_spoken(page: Page) -> None:
    await page.tab.fill("#text", "first")
    await page.tab.press("Enter", CTRL)
    await page.heard()
    await page.tab.fill("#text", "second")
    page.service.step = 0.1
    await page.tab.press("Enter", CTRL)
    await until(page.service.spoken[0].ended.is_set)
    assert page.service.spoken[0].cancelled
    page.service.gate.set()
    await page.done()
    assert [spoken.text for spoken in page.service.spoken] == ["first", "second"]
    assert (await page.tab.text("#facts")).startswith("0.3 s")


async def test_a_gap_is_counted_and_shown(page: Page) -> None:
    await page.tab.click("#speak")
    await page.tab.until("document.querySelector('#status').textContent === 'Waiting for more sound…'")
    page.service.gate.set()
    await page.done()
    # On a busy machine there may be others.
    assert re.search(r"· [1-9]\d* underruns? ·", await page.tab.text("#facts"))


async def test_the_download_is_what_was_spoken(page: Page, tmp_path: Path) -> None:
    await page.tab.downloads_to(tmp_path)
    page.service.gate.set()
    await page.tab.fill("#text", "one two three four five")
    await page.tab.click("#speak")
    await page.done()
    await page.tab.click("#download")
    file = tmp_path / "speech.wav"
    await until(file.exists)
    samples, rate = soundfile.read(io.BytesIO(file.read_bytes()), dtype="int16")
    assert rate == RATE
    assert samples.tobytes() == b"".join(sound(0.2, 0.2 * number) for number in range(5))


async def test_it_is_played_again_without_asking_the_server(page: Page) -> None:
    page.service.gate.set()
    await page.tab.fill("#text", "one two three four five")
    await page.tab.click("#speak")
    await page.done()
    await page.tab.value(FOLLOW)
    await page.tab.click("#again")
    assert await page.tab.text("#speak") == "Stop"
    await page.done()
    assert in_order(await page.tab.value("window.marked"), ["one", "two", "three", "four", "five"])
    assert len(page.service.spoken) == 1


async def test_what_is_not_spoken_as_written_is_said(page: Page) -> None:
    page.service.warning = "nothing of this can be read"
    page.service.gate.set()
    await page.tab.click("#speak")
    await page.done()
    assert await page.tab.text("#warnings") == "nothing of this can be read: ♞"


@pytest.mark.parametrize("path", ["/tts/", "/tts"])
async def test_it_works_below_a_root_path(open_page: Opening, path: str) -> None:
    async with open_page(path, root_path="/tts") as page:
        page.service.gate.set()
        await page.tab.click("#speak")
        await page.done()


async def test_it_plays_where_browsers_have_no_worklets(page: Page) -> None:
    """On plain HTTP from another machine: the page is not in a secure context."""
    await page.load(f"http://page.example:{page.gateway.address.partition(':')[2]}/")
    assert not await page.tab.value("isSecureContext")
    page.service.words = SPOKEN
    await page.tab.fill("#text", TEXT)
    await page.tab.value(FOLLOW)
    await page.tab.click("#speak")
    await page.heard()
    assert not page.service.spoken[0].ended.is_set()
    await asyncio.sleep(0.8)  # the 0.4 s of sound are over
    page.service.gate.set()
    await page.done()
    assert in_order(await page.tab.value("window.marked"), MARKED)
    # On a busy machine there may be others.
    assert re.search(r"· [1-9]\d* underruns? ·", await page.tab.text("#facts"))
