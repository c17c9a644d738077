"""A headless Chromium, driven over its DevTools protocol: one tab, real keys and clicks."""

import asyncio
import base64
import contextlib
import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
DESKTOP, PHONE = (1200, 860), (390, 844)
"""Width and height in CSS pixels."""
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-component-update",
    "--disable-background-networking",
    "--disable-features=Translate,MediaRouter,OptimizationHints",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
)
_KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, " ": 32, "ArrowDown": 40, "ArrowRight": 39, "ArrowLeft": 37}
CTRL, SHIFT = 2, 8
"""Modifiers of a key, as the protocol counts them."""


def program() -> str | None:
    """The browser's executable; None where it is not installed."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Tab:
    """One page. complaints: errors and warnings of its console, uncaught exceptions, and what its
    security policy refused.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self.complaints: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def call(self, method: str, **parameters: Any) -> Any:
        """The result of a command of the protocol. Raises RuntimeError with its error."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        async with asyncio.timeout(30):
            return await self._answers[number]

    async def open(self, address: str) -> None:
        """Load a page, to its end."""
        self._loaded.clear()
        await self.call("Page.navigate", url=address)
        async with asyncio.timeout(30):
            await self._loaded.wait()

    async def value(self, script: str) -> Any:
        """What an expression gives in the page; a promise is awaited. Raises RuntimeError with what
        it threw.
        """
        answer = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=False
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", answer))
        return answer["result"].get("value")

    async def until(self, script: str, seconds: float = 20) -> Any:
        """The first value of an expression that is true. Raises AssertionError with the last one
        after so many seconds.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not (value := await self.value(script)):
            assert loop.time() < end, f"{script} stays {value!r}; the page says {await self.text('body')!r}"
            await asyncio.sleep(0.02)
        return value

    async def text(self, selector: str) -> str:
        """What is shown of an element."""
        return str(await self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    async def click(self, selector: str) -> None:
        """Press the left button in the middle of an element."""
        x, y = await self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'nearest'}});"
            " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def press(self, key: str, modifiers: int = 0) -> None:
        """Press and release one key on whatever has the focus."""
        code = {"key": key, "windowsVirtualKeyCode": _KEYS[key], "modifiers": modifiers}
        written = {"text": "\r" if key == "Enter" else key} if key in ("Enter", " ") and not modifiers else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown" if written else "rawKeyDown", **code, **written)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    async def write(self, text: str) -> None:
        """Write into whatever has the focus, in place of what is selected."""
        await self.call("Input.insertText", text=text)

    async def fill(self, selector: str, text: str) -> None:
        """Write a text in place of what a field holds."""
        await self.value(f"document.querySelector({json.dumps(selector)}).select()")
        await self.write(text)

    async def size(self, width: int, height: int, *, phone: bool = False, dark: bool = False) -> None:
        """The size of the window, and the theme that its user prefers."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )  # fmt: skip
        await self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of what is in the window, or of the whole page."""
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait((self._reading,))

    async def _read(self) -> None:
        async for message in self._socket:
            news = json.loads(message)
            if "id" in news:
                answer = self._answers.pop(news["id"])
                if answer.done():
                    continue
                if "error" in news:
                    answer.set_exception(RuntimeError(news["error"]["message"]))
                else:
                    answer.set_result(news["result"])
            else:
                self._note(news["method"], news.get("params", {}))

    def _note(self, event: str, given: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded.set()
        elif event == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif event == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([argument.get("value") for argument in given["args"]]))
        elif event == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")


@contextlib.asynccontextmanager
async def chromium(*flags: str) -> AsyncIterator[Tab]:
    """A browser with one empty tab while the block runs, desktop-sized and light. flags: of its
    command line.
    """
    found = program()
    assert found is not None, "Chromium is not installed"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = await asyncio.create_subprocess_exec(
            found, *_FLAGS, *flags, f"--user-data-dir={profile}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with connect(await _tab_address(browser), max_size=None) as socket:
                tab = Tab(socket)
                for domain in ("Page", "Runtime", "Log"):
                    await tab.call(f"{domain}.enable")
                await tab.size(*DESKTOP)
                yield tab
                await tab.close()
        finally:
            with contextlib.suppress(ProcessLookupError):
                browser.terminate()
            await browser.communicate()


async def _tab_address(browser: asyncio.subprocess.Process) -> str:
    """The WebSocket of its first tab, once it is there."""
    assert browser.stderr is not None
    said = b""
    async with asyncio.timeout(60):
        while b"DevTools listening on " not in said:
            said = await browser.stderr.readline()
            assert said, "Chromium ended before it listened"
    address = said.split()[-1].decode()
    async with connect(address, max_size=None) as socket:
        while True:
            await socket.send(json.dumps({"id": 1, "method": "Target.getTargets"}))
            targets = json.loads(await socket.recv())["result"]["targetInfos"]
            pages = [target["targetId"] for target in targets if target["type"] == "page"]
            if pages:
                return f"{address.partition('/devtools/')[0]}/devtools/page/{pages[0]}"
            await asyncio.sleep(0.05)
