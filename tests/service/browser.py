"""Debian's Chromium without a window, driven through its DevTools protocol: as much of it as the page's tests need."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import aiohttp

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
]
TRIES = 300


class Tab:
    """A browser tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.numbers = count(1)
        self.request_urls: list[str] = []
        self.complaints: list[str] = []

    async def tell(self, method: str, **params) -> dict:
        """Send a command, and record the events until its answer."""
        number = next(self.numbers)
        await self.socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = await self.socket.receive_json()
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self.note(message.get("method"), message.get("params", {}))

    def note(self, method: str | None, params: dict) -> None:
        """Record network requests and errors of the page."""
        if method == "Network.requestWillBeSent":
            self.request_urls.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["source"] != "network":
            self.complaints.append(params["entry"]["text"])

    async def open(self, url: str) -> None:
        """Open a page."""
        for domain in ("Page", "Runtime", "Network", "Log", "DOM"):
            await self.tell(f"{domain}.enable")
        await self.tell("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && document.querySelectorAll('#choices input').length > 0")

    async def value(self, expression: str):
        """Return the value of an expression on the page."""
        answer = await self.tell("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        for _ in range(TRIES):
            if await self.value(f"Boolean({expression})"):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(expression, await self.value("document.body.innerText"), self.complaints)

    async def choose(self, selector: str, path: Path) -> None:
        """Choose a file in the file input."""
        root = (await self.tell("DOM.getDocument"))["root"]["nodeId"]
        node = (await self.tell("DOM.querySelector", nodeId=root, selector=selector))["nodeId"]
        await self.tell("DOM.setFileInputFiles", files=[str(path)], nodeId=node)

    async def type(self, selector: str, text: str) -> None:
        """Type text into a field."""
        await self.value(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.tell("Input.insertText", text=text)

    async def press(self, key: str, code: int) -> None:
        """Press and release a key."""
        letters = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            await self.tell(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **letters
            )

    async def look(self, *, width: int = 1200, dark: bool = False) -> None:
        """Set the screen width and the color scheme."""
        await self.tell(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.tell("Emulation.setEmulatedMedia", features=[scheme])

    async def shot(self) -> bytes:
        """Return a screenshot of the whole page as PNG."""
        answer = await self.tell("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])


class Browser:
    """Chromium with a new profile, for the tests of a module: a process for each test would take too long."""

    def __init__(self, profile: Path) -> None:
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port_file = profile / "DevToolsActivePort"
        for _ in range(TRIES):
            if port_file.exists() and "/devtools/" in port_file.read_text():
                break
            time.sleep(0.05)
        port, path = port_file.read_text().split("\n")
        self.base_url = f"ws://127.0.0.1:{port}"
        self.own_url = f"{self.base_url}{path}"

    @asynccontextmanager
    async def tab(self) -> AsyncIterator[Tab]:
        """Open a tab that shares no cookies, storage and cache with others, and close it at the end."""
        async with aiohttp.ClientSession() as session, session.ws_connect(self.own_url) as socket:
            browser = Tab(socket)
            context = (await browser.tell("Target.createBrowserContext"))["browserContextId"]
            created = await browser.tell("Target.createTarget", url="about:blank", browserContextId=context)
            page_url = f"{self.base_url}/devtools/page/{created['targetId']}"
            async with session.ws_connect(page_url, max_msg_size=0) as page:
                yield Tab(page)
            await browser.tell("Target.disposeBrowserContext", browserContextId=context)

    async def close(self) -> None:
        """End the process; when it is merely killed, it leaves folders behind."""
        async with aiohttp.ClientSession() as session, session.ws_connect(self.own_url) as socket:
            await Tab(socket).tell("Browser.close")
        await asyncio.to_thread(self.process.wait)
