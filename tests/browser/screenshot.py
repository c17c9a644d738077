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
_MOST_SECONDS = 300
TEXT = (
    "Every word you hear was made a moment ago. At 7 o'clock, Dr. Smith paid $12 for dinner; the sound began long "
    "before the last sentence was finished."
)


async def take(path: Path) -> None:
    """Speak once to warm up and once for the figures, then take the picture while it is played
    again. On a busy machine the figures are those of a busy machine.
    """
    async with local_deployment(DEMO, http="127.0.0.1:0") as stack, chromium() as browser, browser.tab() as tab:
        await tab.size(WIDTH, HEIGHT)
        await tab.open(f"http://{stack.http}/")
        await tab.until("document.querySelectorAll('#voice option').length >= 2")
        await tab.fill("#text", TEXT)
        for _ in range(2):
            await tab.click("#speak")
            await tab.until("document.querySelector('#status').textContent === 'Done.'", _MOST_SECONDS)
        await tab.click("#again")
        await tab.until("document.querySelector('#words .now')?.textContent === '$12'", _MOST_SECONDS)
        await tab.screenshot(path)


if __name__ == "__main__":
    asyncio.run(take(Path(sys.argv[1])))
