"""The page in a browser, in front of a speech service that a test paces."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.browser.chromium import Browser, Tab, chromium, program
from tests.browser.speech_service import SpeechService, paced_gateway
from tests.stacks.gateway_server import Gateway


@dataclass
class Page:
    """The page, opened. tab: the browser's; service: behind the gateway."""

    tab: Tab
    service: SpeechService
    gateway: Gateway

    async def load(self, address: str) -> None:
        """Open the page and wait for its voices."""
        await self.tab.open(address)
        await self.tab.until("document.querySelectorAll('#voice option').length >= 2")

    async def done(self) -> None:
        """Everything was heard."""
        await self.tab.until("document.querySelector('#status').textContent === 'Done.'")

    async def heard(self) -> None:
        """The audio thread has played the first sample."""
        await self.tab.until("performance.getEntriesByName('heard').length")

    async def failure(self) -> str:
        """What the page says is wrong, once it does."""
        return str(await self.tab.until("document.querySelector('#failure:not([hidden])')?.innerText"))


Opening = Callable[..., AbstractAsyncContextManager[Page]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One browser for the tests of a file. page.example is this machine by a name for which
    browsers do not make the exceptions of localhost.
    """
    if program() is None:
        pytest.skip("Chromium is not installed: apt-get install chromium, or make browser")
    async with chromium("--host-resolver-rules=MAP page.example 127.0.0.1") as running:
        yield running


@pytest.fixture
def open_page(browser: Browser) -> Opening:
    """Opens the page; at the end the browser's console must hold no error or warning.

    Arguments: path; complaints: how many the console may hold; settings of the gateway.
    """

    @contextlib.asynccontextmanager
    async def opened(path: str = "/", complaints: int = 0, **settings: Any) -> AsyncIterator[Page]:
        async with paced_gateway(**settings) as (served, service), browser.tab() as tab:
            page = Page(tab, service, served)
            await page.load(f"http://{served.address}{path}")
            yield page
            assert len(tab.complaints) == complaints, tab.complaints

    return opened


@pytest_asyncio.fixture(loop_scope="module")
async def page(open_page: Opening, start_options: dict[str, Any]) -> AsyncIterator[Page]:
    """The page, opened. `@pytest.mark.start` takes the arguments of `open_page`."""
    async with open_page(**start_options) as page:
        yield page
