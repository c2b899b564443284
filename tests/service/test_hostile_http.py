"""Hostile HTTP: compressed, endless, slow and malformed requests harm neither the service nor other clients."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from lightmeter.service.http.connections import ConnectionLimits
from lightmeter.service.http.parameters import MAX_CHARS

WAIT_S = 30.0
"""Ends a test that hangs; nothing depends on it otherwise."""


@asynccontextmanager
async def connected(service, first_bytes: bytes = b""):
    """A raw connection to the service, over which some bytes were sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    try:
        writer.write(first_bytes)
        await writer.drain()
        yield reader, writer
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], dict]:
    """Read one answer: status, headers in lowercase, and the JSON body."""
    async with asyncio.timeout(WAIT_S):
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        assert headers["content-type"].startswith("application/json"), lines
        body = await reader.readexactly(int(headers["content-length"]))
    return int(lines[0].split()[1]), headers, json.loads(body)


async def closed(reader: asyncio.StreamReader) -> bytes:
    """Return what the service sends until it closes the connection."""
    async with asyncio.timeout(WAIT_S):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


def head(*lines: str, method: str = "POST", path: str = "/api/fetch") -> bytes:
    """Return the head of a request."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: example.org", *lines, "", ""]).encode()


def key_line(caller) -> str:
    """Return the header line with the key of a client."""
    return f"X-API-Key: {caller.headers['X-API-Key']}"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "GZIP", "identity, gzip", "x-unknown"])
async def test_a_compressed_body_is_refused(caller, encoding):
    """A body with a Content-Encoding gets 415, and a sentence that says what to do."""
    body = gzip.compress(b'{"url": "http://example.org/a.png"}')
    refused = await caller.send("POST", "/api/fetch", data=body, headers={"Content-Encoding": encoding})
    assert (refused.status, refused.body["status"]) == (415, "failed")
    assert "Content-Encoding" in refused.body["error"]
    assert await caller.balance() == 1000


async def test_the_encoding_identity_is_no_compression(caller, site):
    """A body with Content-Encoding identity is read."""
    answered = await caller.ask({"Content-Encoding": "identity"}, url=site.url("picture/1.png"))
    assert answered.status == 200


@pytest.mark.parametrize("key", ["X-API-Key: Token nobody", "X-Other: 1"])
@pytest.mark.parametrize("body", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
async def test_a_wrong_key_is_refused_before_the_body(service, key, body):
    """A wrong key is refused when the head has arrived, whatever the body is."""
    async with connected(service, head(key, body, "Content-Encoding: gzip")) as (reader, _):
        assert (await answer(reader))[0] == 401


async def test_a_client_is_asked_for_the_body_only_after_all_checks(service, caller):
    """With Expect: 100-continue a wrong key and a compressed body are refused unread; a good request is asked for."""
    expect = ("Expect: 100-continue", "Content-Length: 2")
    async with connected(service, head("X-API-Key: Token nobody", *expect)) as (reader, _):
        assert (await answer(reader))[0] == 401
    async with connected(service, head(key_line(caller), "Content-Encoding: gzip", *expect)) as (reader, _):
        assert (await answer(reader))[0] == 415
    async with connected(service, head(key_line(caller), *expect)) as (reader, writer):
        async with asyncio.timeout(WAIT_S):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert (await answer(reader))[2]["error"] == "File/URL params are required."


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/credits", 200),
        ("GET", "/healthz", 200),
        ("GET", "/nowhere", 404),
        ("POST", "/api/credits", 405),
        ("POST", "/api/fetch", 400),
    ],
)
async def test_an_unknown_expectation_is_ignored(service, caller, method, path, status):
    """A request with `Expect: foo` gets the same answer, as JSON, as without this header."""
    lines = (key_line(caller), "Expect: foo", "Content-Length: 2")
    async with connected(service, head(*lines, method=method, path=path) + b"{}") as (reader, _):
        found, headers, _ = await answer(reader)
        assert (found, "x-request-id" in headers) == (status, True)


@pytest.mark.parametrize(
    "broken", [b"zz\r\n{}\r\n0\r\n\r\n", b"2\r\n{}junk\r\n", b"fffffffffffffffffffff\r\n"], ids=["size", "end", "huge"]
)
async def test_a_corrupt_body_is_the_fault_of_the_client(service, caller, broken):
    """A body whose chunks are not valid gets 400 as JSON."""
    async with connected(service, head(key_line(caller), "Transfer-Encoding: chunked")) as (reader, writer):
        await asyncio.sleep(0.05)
        writer.write(broken)
        status, _, body = await answer(reader)
    assert (status, body) == (400, {"error": "Invalid request format.", "status": "failed"})


async def test_a_client_that_leaves_in_a_body_is_no_error(service, caller, caplog):
    """A connection that ends in the middle of a body is logged as 499, without a traceback."""
    caplog.set_level("INFO", "lightmeter.access")
    async with connected(service, head(key_line(caller), "Content-Length: 10") + b"{"):
        await asyncio.sleep(0.05)
    for _ in range(100):
        if any("status=499" in record.getMessage() for record in caplog.records):
            break
        await asyncio.sleep(0.05)
    else:
        pytest.fail("the request was not logged")
    assert all(record.exc_info is None for record in caplog.records)


MALFORMED = {
    "no HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64)),
    "bad version": b"GET / HTTP/9.9\r\n\r\n",
    "bad header": b"GET /healthz HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
    "two lengths": b"POST /api/fetch HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "bad length": b"POST /api/fetch HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "bad target": b"GET http://[::1/ HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("raw_request", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_http_is_answered_as_json(service, raw_request, caplog):
    """Malformed HTTP gets the contract's error as JSON; the log has one line and no traceback."""
    async with connected(service, raw_request) as (reader, _):
        status, _, body = await answer(reader)
        assert (status, body) == (400, {"error": "Invalid request format.", "status": "failed"})
        assert await closed(reader) == b""
    assert all(record.exc_info is None for record in caplog.records)


async def test_a_too_long_line_is_answered_as_json(service):
    """A request line beyond every limit gets 414 and the contract's text; a header gets 431."""
    async with connected(service, b"GET /api/fetch?url=" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n") as (
        reader,
        _,
    ):
        status, _, body = await answer(reader)
    assert (status, body["error"]) == (414, "Max request length exceeded.")
    async with connected(service, head("X-Long: " + "x" * 9000, method="GET", path="/healthz")) as (reader, _):
        status, _, body = await answer(reader)
    assert (status, body["error"]) == (431, "A header is longer than 8190 bytes.")


async def test_a_half_sent_head_is_cut_off(starting):
    """A connection without a whole request head is closed at its deadline, even if bytes keep arriving."""
    service = await starting(connections=ConnectionLimits(head_s=0.5))
    async with connected(service, b"GET /healthz HTTP/1.1\r\nHost: ") as (reader, writer):
        end = asyncio.ensure_future(closed(reader))
        while not end.done():
            writer.write(b"x")
            await asyncio.sleep(0.05)
        assert end.result() == b""


async def test_an_idle_connection_is_closed(starting):
    """A connection that sends nothing, at first or after an answer, is closed at its deadline."""
    service = await starting(connections=ConnectionLimits(idle_s=0.5))
    async with connected(service) as (silent, _), connected(service, head(method="GET", path="/healthz")) as (used, _):
        assert (await answer(used))[0] == 200
        assert await closed(silent) == await closed(used) == b""


@pytest.fixture
async def unread_answer(starting, calling, encoded, monkeypatch):
    """The socket of a client that has asked for an answer of 20 MB, and the size of this answer at least."""
    monkeypatch.setitem(MAX_CHARS, "prompt", 20_000_000)
    service = await starting(connections=ConnectionLimits(idle_s=1.0))
    caller = await calling(service)
    size = 20_000_000
    fetched = await caller.ask(file=encoded(), prompt="x" * size)
    path = f"/api/response/{fetched.body['request_id']}"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        client.settimeout(0)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", service.port))
        await loop.sock_sendall(client, head(key_line(caller), method="GET", path=path))
        yield client, size


async def test_an_answer_may_take_longer_than_the_limit_of_an_idle_connection(unread_answer):
    """A client that reads a large answer slowly, but steadily, gets all of it."""
    client, size = unread_answer
    read = 0
    async with asyncio.timeout(2 * WAIT_S):
        while read < size:
            chunk = await asyncio.get_running_loop().sock_recv(client, 200_000)
            assert chunk, f"{read} bytes"
            read += len(chunk)
            await asyncio.sleep(0.03)


async def test_a_client_that_hardly_reads_is_cut_off(unread_answer):
    """A client that reads an answer byte by byte does not keep its connection."""
    client, size = unread_answer
    loop, read = asyncio.get_running_loop(), 0
    for _ in range(60):
        read += len(await loop.sock_recv(client, 1))
        await asyncio.sleep(0.05)
    async with asyncio.timeout(WAIT_S):
        while chunk := await loop.sock_recv(client, 1_000_000):
            read += len(chunk)
    assert read < size


async def test_a_half_sent_body_is_refused(starting, calling):
    """A body that does not arrive in time gets 408, also if single bytes keep arriving."""
    service = await starting(connections=ConnectionLimits(body_s=0.3))
    caller = await calling(service)
    async with connected(service, head(key_line(caller), "Content-Length: 100000")) as (reader, writer):
        reply = asyncio.ensure_future(answer(reader))
        while not reply.done():
            writer.write(b" ")
            await asyncio.sleep(0.02)
    status, _, body = reply.result()
    assert (status, body["status"]) == (408, "failed")
    assert "Send it again" in body["error"]


async def test_a_new_connection_replaces_the_one_that_waits_longest(starting, calling):
    """At the limit, unfinished heads and bodies give way to new connections; the service answers throughout."""
    service = await starting(connections=ConnectionLimits(max_connections=4))
    caller = await calling(service)
    unfinished = [b"GET /healthz HTTP/1.1\r\n", head(key_line(caller), "Content-Length: 9") + b"{"] * 10
    connections = [await asyncio.open_connection("127.0.0.1", service.port) for _ in unfinished]
    for (_, writer), first_bytes in zip(connections, unfinished, strict=True):
        writer.write(first_bytes)
    assert (await caller.send("GET", "/healthz")).status == 200
    for reader, _ in connections[:16]:
        assert await closed(reader) == b""
    for _, writer in connections:
        writer.close()


async def test_requests_in_progress_are_not_replaced(starting, calling, site):
    """At the limit, a request that is worked on is finished, and a further connection gets 503."""
    service = await starting(connections=ConnectionLimits(max_connections=1))
    caller = await calling(service)
    body = json.dumps({"url": site.url("held/1.png")}).encode()
    async with connected(service, head(key_line(caller), f"Content-Length: {len(body)}") + body) as (working, _):
        assert await asyncio.to_thread(site.arrived.acquire, timeout=WAIT_S)
        async with connected(service) as (refused, _):
            status, headers, refusal = await answer(refused)
        assert (status, refusal["status"], int(headers["retry-after"]) > 0) == (503, "failed", True)
        site.gate.set()
        assert (await answer(working))[0] == 200


async def test_bodies_share_the_memory(service, calling):
    """An account's bodies beyond its share of the memory get 503; those of others are accepted, as are later ones."""
    hog, other = await calling(service), await calling(service)
    size, began = 200 * 1024 * 1024, b""
    async with connected(service, head(key_line(hog), f"Content-Length: {size}") + b"{"):
        await asyncio.sleep(0.1)
        async with connected(service, head(key_line(hog), f"Content-Length: {size}")) as (reader, _):
            status, headers, _ = await answer(reader)
        assert (status, int(headers["retry-after"]) > 0) == (503, True)
        assert (await other.ask()).body["error"] == "File/URL params are required."
        assert (await hog.ask()).body["error"] == "File/URL params are required."
    expect = head(key_line(hog), "Expect: 100-continue", f"Content-Length: {size}")
    async with asyncio.timeout(WAIT_S):
        while not began.startswith(b"HTTP/1.1 100"):
            async with connected(service, expect) as (reader, _):
                began = await reader.readline()


async def test_large_bodies_of_several_accounts_leave_memory_to_the_others(service, calling):
    """While five accounts hold as much memory for bodies as they get, a sixth one can send a photo."""
    async with AsyncExitStack() as stack:
        for _ in range(5):
            hog = await calling(service)
            for size_mb in (267, 64, 32, 16, 8, 4, 2, 1):
                declared = head(key_line(hog), "Expect: 100-continue", f"Content-Length: {size_mb * 1024**2}")
                reader, _ = await stack.enter_async_context(connected(service, declared))
                if (await reader.readline()).startswith(b"HTTP/1.1 100"):
                    break
        other = await calling(service)
        assert (await other.ask(file="A" * 1024**2)).status == 200
        assert (await other.ask(file="A" * 4 * 1024**2)).status == 503


async def test_an_endless_body_ends_at_the_limit(service, calling, monkeypatch):
    """A chunked body without end gets 413 when it exceeds the largest size."""
    monkeypatch.setattr("lightmeter.service.http.request_body.MAX_BODY_BYTES", 1024 * 1024)
    caller = await calling(service)
    async with connected(service, head(key_line(caller), "Transfer-Encoding: chunked")) as (reader, writer):
        reply = asyncio.ensure_future(answer(reader))
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        async with asyncio.timeout(WAIT_S):
            while not reply.done():
                writer.write(chunk)
                await writer.drain()
        assert (await reply)[0] == 413
