"""Debian's Chromium without a window, driven through its DevTools protocol: as much of it as the page's tests need."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
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
    """Start Chromium with a new profile."""

    def __init__(self, profile: Path) -> None:
        self.profile = profile

    async def __aenter__(self) -> Tab:
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        quiet = asyncio.subprocess.DEVNULL
        self.process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
        self.session = aiohttp.ClientSession()
        port_file = self.profile / "DevToolsActivePort"
        for _ in range(TRIES):
            if port_file.exists() and "\n" in port_file.read_text():
                break
            await asyncio.sleep(0.05)
        port = port_file.read_text().split("\n")[0]
        async with self.session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            pages = [page for page in await answer.json() if page["type"] == "page"]
        self.socket = await self.session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
        self.tab = Tab(self.socket)
        return self.tab

    async def __aexit__(self, *_) -> None:
        await self.tab.tell("Browser.close")  # when it is merely ended, it leaves folders behind
        await self.process.wait()
        await self.socket.close()
        await self.session.close()
