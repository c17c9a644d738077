"""How the page is used: by keyboard alone, by a screen reader, on a phone; and what it says when
something is wrong.
"""

import grpc
import pytest

from tests.browser.chromium import CTRL, DESKTOP, PHONE, SHIFT
from tests.browser.conftest import Page
from tests.stacks.calls import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOCUSED = "document.activeElement.id"


async def test_the_keyboard_alone_is_enough(page: Page) -> None:
    assert await page.tab.value(FOCUSED) == "text"
    order = []
    for _ in range(5):
        await page.tab.press("Tab")
        order.append(await page.tab.value(FOCUSED))
    assert order == ["speak", "voice", "clone", "speed", "seed"]
    await page.tab.write("42")
    await page.tab.press("Tab", SHIFT)
    await page.tab.press("ArrowRight")
    assert await page.tab.text("#speed-value") == "1.05×"
    await page.tab.press("Tab", SHIFT)
    await page.tab.press("Tab", SHIFT)
    await page.tab.press("ArrowDown")
    await page.tab.press("Enter", CTRL)
    await page.heard()
    request = page.service.spoken[0].setup.request
    assert (request.voice, request.seed, round(request.speed, 3)) == ("bruno", 42, 1.05)
    await page.tab.press("Escape")
    await until(page.service.spoken[0].ended.is_set)
    assert await page.tab.text("#status") == "Stopped."
    # The button itself, by its key.
    await page.tab.press("Tab", SHIFT)
    assert await page.tab.value(FOCUSED) == "speak"
    page.service.gate.set()
    await page.tab.press("Enter")
    await page.done()
    assert await page.tab.value(FOCUSED) == "speak"


async def test_the_first_key_may_be_the_one_that_speaks(page: Page) -> None:
    """Of Ctrl+Enter the first key alone does not allow a page to sound."""
    page.service.gate.set()
    await page.tab.press("Control", CTRL)
    await page.tab.press("Enter", CTRL)
    await page.done()


async def test_every_control_has_a_name_and_news_is_announced(page: Page) -> None:
    for dialog in (False, True):
        if dialog:
            await page.tab.click("#clone")
        controls = await page.tab.controls()
        assert len(controls) >= 7
        assert not [role for role, name in controls if not name.strip()], controls
    live = await page.tab.value(
        "[...document.querySelectorAll('[role=status], [role=alert]')].map((element) => element.id)"
    )
    assert {"status", "failure", "cloning-failure", "cloning-stage"} <= set(live)


async def fits(page: Page) -> None:
    wide = await page.tab.value(
        "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5)"
        ".map((e) => e.id || e.className)"
    )
    assert (await page.tab.value("document.documentElement.scrollWidth <= innerWidth"), wide) == (True, [])


@pytest.mark.parametrize("size", [PHONE, (320, 568), DESKTOP])
async def test_nothing_is_wider_than_the_window(page: Page, size: tuple[int, int]) -> None:
    await page.tab.size(*size, phone=size != DESKTOP)
    await fits(page)
    page.service.warning = "not readable: " + "x" * 200
    page.service.gate.set()
    await page.tab.fill("#text", "Everlasting" * 10 + " one two")
    await page.tab.click("#speak")
    await page.done()
    await fits(page)
    page.service.failure = (grpc.StatusCode.INVALID_ARGUMENT, "y" * 300)
    await page.tab.click("#speak")
    await page.failure()
    await fits(page)
    await page.tab.click("#clone")
    await page.tab.value("document.querySelector('[name=source][value=microphone]').click()")
    await fits(page)


async def test_it_follows_the_theme_of_its_user(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await page.tab.value(ground)
    await page.tab.size(*DESKTOP, dark=True)
    assert light == "rgb(244, 245, 244)"
    assert await page.tab.value(ground) == "rgb(16, 21, 20)"


@pytest.mark.parametrize(
    ("code", "message", "said"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "too many", "Try again in a moment."),
        (
            grpc.StatusCode.INVALID_ARGUMENT,
            "there is nothing to speak",
            "The server refused: there is nothing to speak.",
        ),
        (grpc.StatusCode.NOT_FOUND, "no voice", "The server refused: no voice."),
        (grpc.StatusCode.INTERNAL, "the decoder broke", "The server failed: the decoder broke."),
    ],
)
async def test_errors_of_the_server_are_sentences(page: Page, code: grpc.StatusCode, message: str, said: str) -> None:
    page.service.failure = (code, message)
    await page.tab.click("#speak")
    assert (await page.failure()).endswith(said)
    assert await page.tab.text("#speak") == "Speak"
    # And it goes on when the server does.
    page.service.failure = None
    page.service.gate.set()
    await page.tab.click("#speak")
    await page.done()
    assert await page.tab.value("document.querySelector('#failure').hidden")


async def test_what_was_heard_before_a_failure_is_kept(page: Page) -> None:
    page.service.failure, page.service.failure_behind = (grpc.StatusCode.INTERNAL, "the decoder broke"), True
    await page.tab.click("#speak")
    assert "the decoder broke" in await page.failure()
    assert not await page.tab.value("document.querySelector('#download').disabled")


@pytest.mark.start(complaints=1)  # the browser's own line about the connection
async def test_a_server_that_is_gone_is_said(page: Page) -> None:
    await page.tab.click("#speak")
    await page.heard()
    page.gateway.server.should_exit = True
    assert await page.failure() == "The connection to the server was lost. Is it still running?"
    await page.tab.click("#speak")
    await page.tab.until("document.querySelector('#speak').innerText === 'Speak'")
    assert await page.failure() == "The connection to the server was lost. Is it still running?"


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [("#seed", "-1", "The seed is a whole number"), ("#seed", "9" * 17, "The seed"), ("#text", " ", "Write the text")],
)
async def test_what_is_wrong_is_said_at_its_field(page: Page, field: str, text: str, said: str) -> None:
    await page.tab.fill(field, text)
    await page.tab.click("#speak")
    assert (await page.failure()).startswith(said)
    assert await page.tab.value(FOCUSED) == field[1:]
    assert await page.tab.value("document.activeElement.ariaInvalid") == "true"
    assert page.service.spoken == []
