"""A headless Chromium, driven over its DevTools protocol: real keys and clicks."""

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
from websockets.exceptions import ConnectionClosed

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
_KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "Control": 17, " ": 32, "ArrowDown": 40, "ArrowRight": 39}
CTRL, SHIFT = 2, 8
"""Modifiers of a key, as the protocol counts them."""


def program() -> str | None:
    """The browser's executable; None where it is not installed."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Tab:
    """One page. complaints: errors and warnings of its console, uncaught exceptions, and what its
    security policy refused. questions: of `confirm()`, which are answered with yes.
    """

    def __init__(self, socket: ClientConnection, context: str) -> None:
        self._context = context
        self.complaints: list[str] = []
        self.questions: list[str] = []
        self._agreeing: set[asyncio.Future[Any]] = set()
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
        found = f"document.querySelector({json.dumps(selector)})"
        await self.value(f"{found}.scrollIntoView({{block: 'nearest'}})")
        box = await self.value(f"{found}.getBoundingClientRect().toJSON()")
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
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

    async def choose_file(self, selector: str, path: Path) -> None:
        """Give a file to a field, as its dialog would."""
        root = await self.call("DOM.getDocument")
        node = await self.call("DOM.querySelector", nodeId=root["root"]["nodeId"], selector=selector)
        await self.call("DOM.setFileInputFiles", nodeId=node["nodeId"], files=[str(path)])

    async def downloads_to(self, folder: Path) -> None:
        """Where downloaded files go."""
        await self.call(
            "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder), browserContextId=self._context
        )

    async def controls(self) -> list[tuple[str, str]]:
        """Role and name of each control, as a screen reader has them."""
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        roles = ("button", "link", "textbox", "combobox", "slider", "checkbox", "radio", "spinbutton")
        known = [(node.get("role", {}).get("value"), node) for node in nodes if not node.get("ignored")]
        return [(role, node.get("name", {}).get("value", "")) for role, node in known if role in roles]

    async def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of what is in the window, or of the whole page."""
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))

    async def close(self) -> None:
        """Stop listening to it."""
        self._reading.cancel()
        await asyncio.wait((self._reading,))

    async def _read(self) -> None:
        while True:
            try:
                message = await self._socket.recv()
            except ConnectionClosed as closed:
                for answer in self._answers.values():
                    answer.set_exception(closed)
                return
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
        elif event == "Page.javascriptDialogOpening":
            self.questions.append(given["message"])
            agreeing = asyncio.ensure_future(self.call("Page.handleJavaScriptDialog", accept=True))
            self._agreeing.add(agreeing)
            agreeing.add_done_callback(self._agreeing.discard)
        elif event == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif event == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([argument.get("value") for argument in given["args"]]))
        elif event == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")


class Browser:
    """A running browser. host: of its DevTools."""

    def __init__(self, socket: ClientConnection, host: str) -> None:
        self._socket, self._host = socket, host
        self._numbers = itertools.count(1)

    @contextlib.asynccontextmanager
    async def tab(self) -> AsyncIterator[Tab]:
        """An empty tab in a context of its own (no cache, no permissions), desktop-sized and
        light, which is closed at the end.
        """
        context = (await self._call("Target.createBrowserContext"))["browserContextId"]
        target = await self._call("Target.createTarget", url="about:blank", browserContextId=context)
        try:
            async with connect(f"{self._host}/devtools/page/{target['targetId']}", max_size=None) as socket:
                tab = Tab(socket, context)
                for domain in ("Page", "Runtime", "Log"):
                    await tab.call(f"{domain}.enable")
                await tab.size(*DESKTOP)
                yield tab
                await tab.close()
        finally:
            await self._call("Target.disposeBrowserContext", browserContextId=context)

    async def _call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        await self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        async with asyncio.timeout(60):
            while (answer := json.loads(await self._socket.recv())).get("id") != number:
                pass
        return answer["result"]


@contextlib.asynccontextmanager
async def chromium(*flags: str) -> AsyncIterator[Browser]:
    """A browser while the block runs. flags: of its command line."""
    found = program()
    assert found is not None, "Chromium is not installed"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = await asyncio.create_subprocess_exec(
            found, *_FLAGS, *flags, f"--user-data-dir={profile}",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        reading: asyncio.Task[bytes] | None = None
        try:
            address = await _address(browser)
            # What it says further must not fill the pipe.
            reading = asyncio.create_task(browser.stderr.read())  # type: ignore[union-attr]
            async with connect(address, max_size=None) as socket:
                yield Browser(socket, address.partition("/devtools/")[0])
        finally:
            with contextlib.suppress(ProcessLookupError):
                browser.terminate()
            await browser.wait()
            if reading is not None:
                await reading


async def _address(browser: asyncio.subprocess.Process) -> str:
    """The WebSocket of its DevTools, once it listens."""
    assert browser.stderr is not None
    said = b""
    async with asyncio.timeout(60):
        while b"DevTools listening on " not in said:
            said = await browser.stderr.readline()
            assert said, "Chromium ended before it listened"
    return said.split()[-1].decode()
