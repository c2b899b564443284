"""A scripted HTTP server on loopback that records what it receives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from lightmeter.client.classify import Classification, classify_submission
from lightmeter.client.client import Client
from lightmeter.client.http_answer import RawAnswer
from lightmeter.client.request_body import encode_json
from lightmeter.wire.request import AnalyzeRequest

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter, "ReceivedRequests"], Awaitable[None]]


@dataclass
class ReceivedRequests:
    """The requests that the server received."""

    base_url: str = ""
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)


class StepClock:
    """A clock that advances only during `sleep`."""

    def __init__(self):
        self.time_s = 1000.0
        self.slept = []

    def now(self):
        """Return the time in seconds."""
        return self.time_s

    def monotonic(self):
        """Return the time in seconds."""
        return self.time_s

    async def sleep(self, seconds):
        """Advance the time at once."""
        self.slept.append(seconds)
        self.time_s += seconds
        await asyncio.sleep(0)


async def submit(client: Client, request: AnalyzeRequest, **options: str) -> tuple[RawAnswer, Classification]:
    """Send a request; return its answer and what it means."""
    raw = await client.send_request(encode_json(request.to_wire()), **options)
    return raw, classify_submission(raw)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """Read one request, head and body; raise `IncompleteReadError` if the connection ends."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head + await reader.readexactly(length)


def http(status: int, body: object = b"", **headers: str) -> bytes:
    """Return an HTTP answer; a body other than bytes is encoded as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Something", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def answering(*answers: bytes) -> Script:
    """Return a script that answers each request with the next of `answers`, over any number of connections."""
    left = list(answers)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: ReceivedRequests) -> None:
        while left:
            received.requests.append(await read_request(reader))
            writer.write(left.pop(0))
            await writer.drain()

    return script


@asynccontextmanager
async def _serving(script: Script) -> AsyncIterator[ReceivedRequests]:
    received = ReceivedRequests()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.connections += 1
        tasks.add(asyncio.current_task())
        try:
            await script(reader, writer, received)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, or the test is over
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    received.base_url = f"http://127.0.0.1:{port}"
    try:
        yield received
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@pytest.fixture
def serving():
    """Start a server with a script on a free loopback port, for `async with`."""
    return _serving
