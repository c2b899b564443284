"""A scripted HTTP server on loopback that records what it receives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter, "Heard"], Awaitable[None]]


@dataclass
class Heard:
    """What came to the server."""

    base_url: str = ""
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)


class StepClock:
    """A clock that only moves when somebody sleeps."""

    def __init__(self):
        self.time_s = 1000.0
        self.slept = []

    def now(self):
        """Seconds, as of the last sleep."""
        return self.time_s

    def monotonic(self):
        """The same."""
        return self.time_s

    async def sleep(self, seconds):
        """Move on at once."""
        self.slept.append(seconds)
        self.time_s += seconds
        await asyncio.sleep(0)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One request, head and body; raises IncompleteReadError when the other side is done."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head + await reader.readexactly(length)


def http(status: int, body: object = b"", **headers: str) -> bytes:
    """An HTTP answer; anything but bytes is written as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Something", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def saying(*answers: bytes) -> Script:
    """A script that answers each request with the next of `answers`, over any number of connections."""
    left = list(answers)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: Heard) -> None:
        while left:
            heard.requests.append(await read_request(reader))
            writer.write(left.pop(0))
            await writer.drain()

    return script


@asynccontextmanager
async def _serving(script: Script) -> AsyncIterator[Heard]:
    heard = Heard()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.connections += 1
        tasks.add(asyncio.current_task())
        try:
            await script(reader, writer, heard)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, or the test is over
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    heard.base_url = f"http://127.0.0.1:{port}"
    try:
        yield heard
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@pytest.fixture
def serving():
    """A real server on a free port of the loopback, for `async with`."""
    return _serving
