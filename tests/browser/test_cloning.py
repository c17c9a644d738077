"""A voice is made of a file or of the microphone, chosen, used and deleted."""

import io
import wave
from pathlib import Path

import pytest
import soundfile

from tests.browser.conftest import Page
from tests.browser.speech_service import sound

pytestmark = pytest.mark.asyncio(loop_scope="module")

VOICES = "[...document.querySelector('#voice').options].map((option) => option.text)"


def recording(folder: Path, name: str = "sample.wav") -> Path:
    path = folder / name
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes(sound(2.0))
    return path


async def fill(page: Page, sample: Path) -> None:
    await page.tab.click("#clone")
    await page.tab.choose_file("#sample", sample)
    await page.tab.fill("#voice-name", "Clara")
    await page.tab.value("document.querySelector('#voice-sex').value = 'female'")
    await page.tab.fill("#voice-transcript", "What is said.")
    await page.tab.click("#voice-consent")


async def failure(page: Page) -> str:
    return str(await page.tab.until("document.querySelector('#cloning-failure:not([hidden])')?.innerText"))


async def test_a_file_becomes_a_voice_that_is_chosen_and_can_be_deleted(page: Page, tmp_path: Path) -> None:
    sample = recording(tmp_path)
    await fill(page, sample)
    await page.tab.click("#cloning-submit")
    await page.tab.until("document.querySelector('#status').textContent === 'The voice “Clara” is ready.'")
    (draft,) = page.service.drafts
    assert draft.audio == sample.read_bytes()
    assert (draft.transcript, draft.metadata.display_name) == ("What is said.", "Clara")
    assert dict(draft.metadata.labels) == {"sex": "female"}
    assert draft.provenance.startswith("Consent of the speaker confirmed on the page, 20")
    assert not await page.tab.value("document.querySelector('#cloning').open")
    assert "Clara · female · American English" in await page.tab.value(VOICES)
    assert await page.tab.value("document.querySelector('#voice').value") == "clara"
    assert await page.tab.value("document.activeElement.id") == "text"
    page.service.gate.set()
    await page.tab.click("#speak")
    await page.done()
    assert page.service.spoken[0].setup.request.voice == "clara"
    await page.tab.click("#delete-voice")
    await page.tab.until("document.querySelector('#voice').value === 'anna'")
    assert page.tab.questions == ["Delete the voice “Clara” for good?"]
    assert await page.tab.value("document.querySelector('#delete-voice').hidden")


@pytest.mark.start(complaints=1)  # the browser's own line about status 400
async def test_the_server_says_in_words_why_it_makes_no_voice(page: Page, tmp_path: Path) -> None:
    page.service.draft_failure = "the recording is silent"
    await fill(page, recording(tmp_path))
    await page.tab.click("#cloning-submit")
    assert await failure(page) == "The server refused: the recording is silent."
    assert await page.tab.value("document.querySelector('#cloning').open")
    page.service.draft_failure = ""
    await page.tab.click("#cloning-submit")
    await page.tab.until("!document.querySelector('#cloning').open")


@pytest.mark.parametrize(
    ("undo", "said"),
    [
        ("document.querySelector('#voice-consent').click()", "A voice is made only with the consent of its speaker."),
        ("document.querySelector('#voice-name').value = ' '", "Give the voice a name."),
        ("document.querySelector('#sample').value = ''", "Choose a recording first."),
    ],
)
async def test_nothing_is_sent_without_consent_name_or_recording(
    page: Page, tmp_path: Path, undo: str, said: str
) -> None:
    await fill(page, recording(tmp_path))
    await page.tab.value(undo)
    await page.tab.click("#cloning-submit")
    assert await failure(page) == said
    assert page.service.drafts == []


async def test_a_file_that_is_too_large_or_no_sound_is_not_sent(page: Page, tmp_path: Path) -> None:
    large = tmp_path / "large.wav"
    large.write_bytes(bytes(11 << 20))
    await fill(page, large)
    await page.tab.click("#cloning-submit")
    assert await failure(page) == (
        "The recording has 11.0 MiB; at most 10 MiB are allowed, which is more than 30 seconds need."
    )
    (tmp_path / "film.m4a").write_bytes(b"no sound")
    await page.tab.choose_file("#sample", tmp_path / "film.m4a")
    await page.tab.click("#cloning-submit")
    await page.tab.until("document.querySelector('#cloning-failure').innerText.startsWith('“film.m4a” is no sound')")
    assert page.service.drafts == []


async def test_what_only_the_browser_can_decode_is_sent_as_wav(page: Page, tmp_path: Path) -> None:
    await fill(page, recording(tmp_path).rename(tmp_path / "sample.unknown"))
    await page.tab.click("#cloning-submit")
    await page.tab.until("!document.querySelector('#cloning').open")
    samples, rate = soundfile.read(io.BytesIO(page.service.drafts[0].audio))
    assert (rate, round(len(samples) / rate, 2)) == (48_000, 2.0)


async def test_the_microphone_is_recorded_as_it_is(page: Page) -> None:
    """Chromium's own false microphone beeps once a second."""
    await page.tab.click("#clone")
    await page.tab.value("document.querySelector('[name=source][value=microphone]').click()")
    await page.tab.click("#record")
    await page.tab.until("parseFloat(document.querySelector('#recorded').innerText) >= 1.3")
    await page.tab.click("#record")
    await page.tab.until("document.querySelector('#recording').duration > 1.2")
    await page.tab.fill("#voice-name", "Clara")
    await page.tab.click("#voice-consent")
    await page.tab.click("#cloning-submit")
    await page.tab.until("!document.querySelector('#cloning').open")
    (draft,) = page.service.drafts
    samples, rate = soundfile.read(io.BytesIO(draft.audio))
    assert len(samples) > 1.2 * rate
    assert abs(samples).max() > 0.01
    assert draft.transcript.startswith("The quick brown fox")


async def test_escape_closes_the_dialog_and_lets_the_microphone_go(page: Page) -> None:
    await page.tab.click("#clone")
    await page.tab.value("document.querySelector('[name=source][value=microphone]').click()")
    await page.tab.click("#record")
    await page.tab.until("parseFloat(document.querySelector('#recorded').innerText) > 0.1")
    await page.tab.press("Escape")
    await page.tab.until("!document.querySelector('#cloning').open")
    await page.tab.until("document.querySelector('#record').textContent === 'Record again'")
    assert await page.tab.value("document.activeElement.id") == "clone"
