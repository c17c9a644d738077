"""A server with keys: the page asks for one, sends it with everything, and keeps it in the tab."""

import pytest

from services.orchestrator.access.callers import Callers, LimitParts
from services.orchestrator.access.gate import AccessGate
from services.orchestrator.access.key_ring import KeyRing
from tests.browser.chromium import Browser
from tests.browser.conftest import Page
from tests.browser.speech_service import paced_gateway
from tests.stacks.key_holders import key_holder

pytestmark = pytest.mark.asyncio(loop_scope="module")
ASKED = "document.querySelector('#access').open"
VOICES = "document.querySelectorAll('#voice option').length >= 2"


async def test_the_page_asks_for_a_key_and_keeps_it(browser: Browser) -> None:
    holder = key_holder("alice")
    gate = AccessGate(Callers(KeyRing([holder.record]), None, LimitParts(1)))
    async with paced_gateway(gate, require_key=True) as (served, service), browser.tab() as tab:
        page, address = Page(tab, service, served), f"http://{served.address}/"
        service.gate.set()
        await tab.open(address)
        await tab.until(ASKED)
        await tab.fill("#api-key", "csk-wrong")
        await tab.click("#access-submit")
        await tab.until("document.querySelector('#access-hint').textContent.includes('does not take')")
        await tab.fill("#api-key", holder.secret)
        await tab.click("#access-submit")
        await tab.until(VOICES)
        assert not await tab.value(ASKED)
        await tab.fill("#text", "It works.")
        await tab.click("#speak")
        await page.done()
        assert service.spoken[0].metadata["authorization"] == f"Bearer {holder.secret}"
        await page.load(address)  # again: the tab has the key
        assert not await tab.value(ASKED)
        assert await tab.value("document.querySelector('#api-key').value") == ""
        assert holder.secret not in await tab.value("location.href + document.cookie + JSON.stringify(localStorage)")
        await tab.value("sessionStorage.clear()")
        await tab.open(address)
        await tab.until(ASKED)
        await tab.click("#access-cancel")
        assert "key" in await page.failure()
