"""`python -m tests.browser.screenshot FILE`: the page as a PNG while the bundled model speaks, the
picture of the README.
"""

import asyncio
import sys
from pathlib import Path

from cosyserve.host.supervision.supervisor import local_deployment
from tests.browser.chromium import chromium
from tests.stacks.up_process import DEMO

WIDTH, HEIGHT = 1120, 780
TEXT = (
    "Every word you hear was made a moment ago. At 7 o'clock, Dr. Smith paid $12 for dinner; the sound began long "
    "before the last sentence was finished."
)


async def take(path: Path) -> None:
    """Speak once to warm up, then take the picture in the middle of a second time."""
    async with local_deployment(DEMO, http="127.0.0.1:0") as stack, chromium() as browser, browser.tab() as tab:
        await tab.size(WIDTH, HEIGHT)
        await tab.open(f"http://{stack.http}/")
        await tab.until("document.querySelectorAll('#voice option').length >= 2")
        await tab.fill("#text", TEXT)
        for _ in range(2):
            await tab.click("#speak")
            await tab.until("document.querySelector('#status').textContent.startsWith('Playing. Everything')", 60)
            await tab.until("document.querySelector('#words .now')?.textContent === '$12'", 60)
            await tab.screenshot(path)
            await tab.until("document.querySelector('#status').textContent === 'Done.'", 60)


if __name__ == "__main__":
    asyncio.run(take(Path(sys.argv[1])))
