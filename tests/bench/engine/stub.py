"""Stub service for benchmarks: it returns prepared bytes, so that the client is measured and not the server.

Run as `python stub.py [--latency S] [--rate RPS] [--acknowledge S]`; it prints `listening on http://HOST:PORT`. With
`--rate` a hidden token bucket that holds one second's worth rejects requests with 429; with `--acknowledge` every
request is acknowledged and done so many seconds later. `GET /counts` returns its counters.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from itertools import count

__all__ = ["answer_about"]

_TAGS = {
    name: [{"name": name, "score": 0.95 - place / 100, "source": "clarifai"}]
    for place, name in enumerate(("mountain", "lake", "sky", "snow", "forest", "water", "landscape", "outdoors"))
}
_COLORS = {
    hex_: [
        {"hex": hex_, "score": 0.2, "pixel_fraction": 0.2, "red": 10, "green": 20, "blue": 30, "source": "googlevision"}
    ]
    for hex_ in ("#0a141e", "#0b151f", "#0c1620", "#0d1721", "#0e1822")
}
_NSFW = [{"label": "nudity", "score": 0.01, "source": "clarifai"}, {"label": "adult", "likelihood": "VERY_UNLIKELY"}]
_MARK = "http://mark"
_HEAD, _TAIL = (
    json.dumps(
        {
            "status": "completed",
            "credits_paid": 1,
            "credits": 100_000_000,
            "all": {"assets": [{"name": _MARK, "tags": _TAGS, "colors": _COLORS, "nsfw": _NSFW}], "errors": []},
        }
    )
    .encode()
    .split(_MARK.encode())
)


def answer_about(url: bytes) -> bytes:
    """Return the body for one picture: 8 tags, 5 colors, 2 labels."""
    return _HEAD + url + _TAIL


def _http(body: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body


class Stub:
    """State shared by all connections."""

    def __init__(self, latency_s: float, rate: float, acknowledge_s: float) -> None:
        self.latency_s, self.rate, self.acknowledge_s = latency_s, rate, acknowledge_s
        self.counts = {"taken": 0, "rejected": 0, "polls": 0, "first": 0.0, "last": 0.0}
        self.numbers = count(1)
        self.done_at: dict[bytes, float] = {}
        self.tokens, self.refilled_at = max(1.0, rate), time.monotonic()

    def answer(self, head: bytes, body: bytes) -> tuple[bytes, float]:
        """Return the answer to a request, and its delay in seconds."""
        if head.startswith(b"POST /api/fetch"):
            return self.fetch(body)
        if head.startswith(b"GET /api/response/"):
            return self.poll(head[len(b"GET /api/response/") :].partition(b" ")[0]), 0.0
        if head.startswith(b"GET /counts"):
            return _http(json.dumps(self.counts).encode()), 0.0
        return _http(b'{"credits": 100000000}'), 0.0

    def fetch(self, body: bytes) -> tuple[bytes, float]:
        """Accept or reject a request."""
        now = time.monotonic()
        if self.rate:
            self.tokens = min(max(1.0, self.rate), self.tokens + (now - self.refilled_at) * self.rate)
            self.refilled_at = now
            if self.tokens < 1:
                self.counts["rejected"] += 1
                return _http(b'{"error": "Too many requests."}', b"429 Too Many Requests"), 0.0
            self.tokens -= 1
        self.counts["taken"] += 1
        self.counts["first"] = self.counts["first"] or now
        self.counts["last"] = now
        if self.acknowledge_s:
            request_id = b"r%d" % next(self.numbers)
            self.done_at[request_id] = now + self.acknowledge_s
            return _http(b'{"request_id": "%b", "status": "queued", "success": true}' % request_id), 0.0
        return _http(answer_about(_url_in(body))), self.latency_s

    def poll(self, request_id: bytes) -> bytes:
        """Return the result, or that it is not ready."""
        self.counts["polls"] += 1
        if time.monotonic() < self.done_at[request_id]:
            return _http(b'{"status": "processing", "request_id": "%b"}' % request_id)
        return _http(answer_about(b"http://pictures.example/" + request_id))


def _url_in(body: bytes) -> bytes:
    """Return the first URL in a body, without parsing it as JSON."""
    start = body.find(b'"http', body.find(b'"url"')) + 1
    return body[start : body.find(b'"', start)]


class Connection(asyncio.Protocol):
    """HTTP/1.1 connection with keep-alive and without pipelining."""

    def __init__(self, stub: Stub) -> None:
        self.stub = stub
        self.buffer = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end]
            place = head.lower().find(b"content-length:")
            length = 0 if place < 0 else int(head[place + 15 :].partition(b"\r\n")[0])
            if len(self.buffer) < end + 4 + length:
                return
            body, self.buffer = self.buffer[end + 4 : end + 4 + length], self.buffer[end + 4 + length :]
            answer, after_s = self.stub.answer(head, body)
            if after_s:
                asyncio.get_running_loop().call_later(after_s, self.write, answer)
            else:
                self.write(answer)

    def write(self, answer: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(answer)


async def main() -> None:
    """Serve until the process is terminated."""
    parser = argparse.ArgumentParser()
    for name in ("latency", "rate", "acknowledge"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    given = parser.parse_args()
    stub = Stub(given.latency, given.rate, given.acknowledge)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(stub), "127.0.0.1", 0, backlog=1024)
    say = print  # the parent process waits for this line
    say(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    gc.freeze()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
