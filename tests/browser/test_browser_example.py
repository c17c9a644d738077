"""examples/browser.html in a real browser, as a page of another origin: it plays what it gets."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import chromium, program
from tests.stacks.gateway_server import scripted_gateway
from tests.stacks.scripted_stages import expected_audio

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TEXT = "one sentence after another"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def page() -> Iterator[str]:
    """Origin of a server of the examples."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=EXAMPLES))
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.mark.skipif(program() is None, reason="Chromium is not installed")
async def test_it_plays_the_whole_speech_and_says_what_was_refused(page: str) -> None:
    async with (
        scripted_gateway({"allowed_origins": (page,)}) as (served, _),
        chromium() as browser,
        browser.tab() as tab,
    ):
        await tab.open(f"{page}/browser.html?server=http://{served.address}")
        await tab.fill("textarea", TEXT)
        await tab.click("button")
        seconds = await tab.until("document.querySelector('output').value.match(/^([0-9.]+) s$/)?.[1]")
        # The player begins 50 ms after the sound has come.
        assert float(seconds) >= len(expected_audio(TEXT)) / 48_000
        assert not [line for line in tab.complaints if "favicon" not in line]
        await tab.fill("textarea", " ")
        await tab.click("button")
        await tab.until("document.querySelector('output').value.includes('text')")
